"""The suite is strict: warnings are errors, JAX neither promotes dtypes or ranks nor sees a single device only."""

from __future__ import annotations

import gc
import inspect
import mmap
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import pytest

from sparkdl.compiler import OPTIONS

# XLA's older emitters compile in half of the time; XLA ends processes that set a flag which it does not know. The hosts
# of tests/cluster, notebooks and benchmarks have none of this.
EMITTERS = "xla_cpu_use_fusion_emitters"


def knows(flag: str) -> bool:
    """Whether this XLA has a flag of this name."""
    [folder] = find_spec("jaxlib").submodule_search_locations  # type: ignore[union-attr, misc]
    for library in Path(folder).glob("libjax_common.*"):
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(flag.encode()) >= 0
    return False


if EMITTERS not in os.environ.get("XLA_FLAGS", "") and knows(EMITTERS):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --{EMITTERS}=false"
jax.config.update("jax_num_cpu_devices", 3)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Java's optimizing compiler is half of a session's work, and pays off in none this short; half of the rest is to load
# and verify classes, which share_classes.py may have done. Subprocesses get these too.
_java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ.setdefault("SPARK_LAUNCHER_OPTS", _java)
_classes = Path(sys.prefix, "spark.jsa")
if _classes.exists() and _classes.stat().st_size:
    _java += f" -XX:SharedArchiveFile={_classes} -Xlog:disable"
os.environ.setdefault("SPARK_SUBMIT_OPTS", _java)

ON_SPARK = ("tests/spark/", "tests/faults/", "tests/fuzz/")
# With no session, or with their own.
ALONE = (
    "test_everywhere.py",
    "test_processes.py",
    "test_slots.py",
    "test_task.py",
)


# What `make test` leaves to `make test-slow`, `make test-cluster` and `make test-benchmarks`: faults, several hosts,
# mutations, real processes, what waits or trains long.
SLOW = (
    "tests/benchmarks/",
    "tests/cluster/",
    "tests/faults/",
    "tests/fuzz/",
    "tests/interchange/test_keras_in.py",
    "tests/interchange/test_onnx_files.py::test_it_trains",
    "tests/interchange/test_onnx_files.py::test_without",
    "tests/interchange/test_onnx_in.py",
    "tests/interchange/test_onnx_masks.py",
    "tests/interchange/test_onnx_models.py",
    "tests/interchange/test_onnx_networks.py",
    "tests/interchange/test_onnx_out.py",
    "tests/interchange/test_onnx_recurrent.py",
    "tests/interchange/test_onnx_round_trips.py",
    "tests/interchange/test_onnx_torch.py",
    "tests/interchange/test_onnx_transformers.py",
    "tests/interchange/test_weight_files.py::test_a_head",
    "tests/interchange/test_weight_files.py::test_bert",
    "tests/interchange/test_weight_files.py::test_distilbert",
    "tests/interchange/test_weight_files.py::test_files_differ",
    "tests/interchange/test_weight_files.py::test_float64",
    "tests/interchange/test_weight_files.py::test_heads_of_other_tasks_count_nothing[inception",
    "tests/interchange/test_weight_files.py::test_inception",
    "tests/interchange/test_weight_files.py::test_mobile",
    "tests/interchange/test_weight_files.py::test_nn4",
    "tests/interchange/test_weight_files.py::test_plain",
    "tests/interchange/test_weight_files.py::test_residual_networks",
    "tests/interchange/test_weight_files.py::test_vision",
    "tests/interchange/test_weight_files.py::test_what_is_written_is_read[bert",
    "tests/interchange/test_weight_files.py::test_what_is_written_is_read[inception",
    "tests/interchange/test_weight_files.py::test_what_is_written_is_read[mobilenet_v2",
    "tests/interchange/test_weight_files.py::test_what_is_written_is_read[resnet, huggingface",
    "tests/interchange/test_weight_files.py::test_what_is_written_is_read[resnet, timm",
    "tests/interchange/test_weight_files.py::test_what_is_written_is_read[vit",
    "tests/interchange/test_weight_files.py::test_what_prepares_images_stays_as_it_is[vision",
    "tests/launch/test_fork_server.py",
    "tests/launch/test_lost_hosts.py",
    "tests/launch/test_worker.py",
    "tests/layers/test_attention.py::test_blocks",
    "tests/layers/test_attention.py::test_it_and_its_slopes_are_those_of_torch[False]",
    "tests/layers/test_attention.py::test_memory",
    "tests/layers/test_carried_attention.py::test_a_block",
    "tests/layers/test_carried_attention.py::test_a_segment_of_many",
    "tests/layers/test_carried_attention.py::test_arrays",
    "tests/layers/test_carried_attention.py::test_gpt2",
    "tests/layers/test_carried_attention.py::test_segments_give_what_whole_rows_give[attention",
    "tests/layers/test_carried_attention.py::test_segments_give_what_whole_rows_give[encoder",
    "tests/layers/test_carried_attention.py::test_segments_give_what_whole_rows_give[positions",
    "tests/layers/test_carried_attention.py::test_steps_far_into_a_row_are_told_apart_as_well_as_the_first[float64",
    "tests/layers/test_carried_attention.py::test_steps_for",
    "tests/layers/test_carried_attention.py::test_steps_one",
    "tests/layers/test_carried_state.py::test_slopes",
    "tests/layers/test_composite.py::test_activations",
    "tests/layers/test_composite.py::test_penalties_and_frozen",
    "tests/layers/test_convolution_over_time.py::test_a_causal_convolution_is_pytorchs",
    "tests/layers/test_convolution_over_time.py::test_a_causal_convolution_is_that_of_keras",
    "tests/layers/test_convolution_over_time.py::test_a_network_keeps",
    "tests/layers/test_convolution_over_time.py::test_rows_of_any_length",
    "tests/layers/test_embedding.py::test_a_character_model",
    "tests/layers/test_embedding.py::test_the_vector_of_unknown",
    "tests/layers/test_layers.py::test_a_batch_is_its_rows_and_its_gradient_their_sum[Transformer",
    "tests/layers/test_layers.py::test_compiled_and_eager",
    "tests/layers/test_layers.py::test_delta_and_gradient_are_the_derivatives_of_forward[Bidirectional",
    "tests/layers/test_layers.py::test_delta_and_gradient_are_the_derivatives_of_forward[Transformer",
    "tests/layers/test_layers.py::test_kernels_keep_the_dtype_of_rows[bfloat16-Transformer",
    "tests/layers/test_layers.py::test_kernels_keep_the_dtype_of_rows[float64-Transformer",
    "tests/layers/test_layers.py::test_training_runs",
    "tests/layers/test_layers.py::test_what_a_row_is_padded_with_and_how_far_changes_nothing[19-Row(layer=Bidirectional",
    "tests/layers/test_layers.py::test_what_a_row_is_padded_with_and_how_far_changes_nothing[19-Row(layer=DepthwiseConv",
    "tests/layers/test_layers.py::test_what_a_row_is_padded_with_and_how_far_changes_nothing[19-Row(layer=Gru(",
    "tests/layers/test_layers.py::test_what_a_row_is_padded_with_and_how_far_changes_nothing[19-Row(layer=Lstm",
    "tests/layers/test_layers.py::test_what_a_row_is_padded_with_and_how_far_changes_nothing[19-Row(layer=MultiHead",
    "tests/layers/test_layers.py::test_what_a_row_is_padded_with_and_how_far_changes_nothing[19-Row(layer=SeparableConv",
    "tests/layers/test_layers.py::test_what_a_row_is_padded_with_and_how_far_changes_nothing[19-Row(layer=TemporalConv",
    "tests/layers/test_layers.py::test_what_a_row_is_padded_with_and_how_far_changes_nothing[4-",
    "tests/layers/test_one_class.py",
    "tests/layers/test_patches.py::test_many_channels",
    "tests/layers/test_products.py::test_forward_and_delta",
    "tests/layers/test_recurrent.py::test_both_ways",
    "tests/layers/test_recurrent.py::test_it_and_its_slopes_are_those_of_keras",
    "tests/layers/test_recurrent.py::test_it_is_what_a_plain_loop",
    "tests/layers/test_recurrent.py::test_rows_of_any_length_are_what_each_is_alone",
    "tests/layers/test_recurrent.py::test_steps_",
    "tests/layers/test_recurrent.py::test_what_is_dropped",
    "tests/layers/test_row_parts.py::test_a_convolution_of_many",
    "tests/layers/test_tied.py::test_it_learns_to_tell_the_next_category",
    "tests/layers/test_transformer.py::test_a_decoder_and_its_slopes",
    "tests/layers/test_transformer.py::test_rows_that_all",
    "tests/layers/test_winograd.py::test_in_float32",
    "tests/scoring/test_predict_files.py::test_it_is_a_program",
    "tests/spark/test_bad_input.py::test_a_loss_that",
    "tests/spark/test_bad_input.py::test_an_image_that",
    "tests/spark/test_bad_input.py::test_few_rows",
    "tests/spark/test_bad_input.py::test_labels_that_lose",
    "tests/spark/test_bad_input.py::test_names_may",
    "tests/spark/test_bad_input.py::test_nothing_is_left",
    "tests/spark/test_bad_input.py::test_the_job_of",
    "tests/spark/test_bad_input.py::test_what_only_the_rows",
    "tests/spark/test_benchmark_order.py",
    "tests/spark/test_categories.py",
    "tests/spark/test_citizen.py",
    "tests/spark/test_column_types.py::test_a_fit_skips",
    "tests/spark/test_column_types.py::test_files_that_a_fit_keeps",
    "tests/spark/test_column_types.py::test_fits_on_columns_of_other_types",
    "tests/spark/test_column_types.py::test_models_score_columns_of_every_type",
    "tests/spark/test_column_types.py::test_sql_functions",
    "tests/spark/test_column_types.py::test_vectors_of_both",
    "tests/spark/test_columns_of_text.py::test_a_model",
    "tests/spark/test_columns_of_text.py::test_a_vocabulary",
    "tests/spark/test_columns_of_text.py::test_hashed_words",
    "tests/spark/test_columns_of_text.py::test_lines",
    "tests/spark/test_columns_of_text.py::test_text",
    "tests/spark/test_custom.py",
    "tests/spark/test_detection.py::test_a_pipeline",
    "tests/spark/test_detection.py::test_boxes_are",
    "tests/spark/test_detection.py::test_it_finds",
    "tests/spark/test_detection.py::test_labels_that",
    "tests/spark/test_detection.py::test_workers_learn",
    "tests/spark/test_evaluation.py::test_classes_of_positions_are_measured_over_all_of_them[1048576]",
    "tests/spark/test_evaluation.py::test_numbers_of_positions",
    "tests/spark/test_evaluation.py::test_one_job",
    "tests/spark/test_evaluation.py::test_one_output_a_position",
    "tests/spark/test_evaluation.py::test_positions_of_labelled_steps",
    "tests/spark/test_evaluation.py::test_quantiles",
    "tests/spark/test_evaluation.py::test_three_classes",
    "tests/spark/test_everywhere.py",
    "tests/spark/test_featurizer.py::test_a_",
    "tests/spark/test_featurizer.py::test_files_of",
    "tests/spark/test_featurizer.py::test_graphs",
    "tests/spark/test_featurizer.py::test_it_is",
    "tests/spark/test_featurizer.py::test_rows_that",
    "tests/spark/test_featurizer.py::test_weights_come",
    "tests/spark/test_fine_tuning.py",
    "tests/spark/test_fit.py::test_a_second_fit_of_equal_shapes",
    "tests/spark/test_fit.py::test_a_step_on_all_rows_is_one_of_gradient_descent[bytes",
    "tests/spark/test_fit.py::test_a_step_on_all_rows_is_one_of_gradient_descent[float32",
    "tests/spark/test_fit.py::test_a_step_on_all_rows_is_one_of_gradient_descent[weights",
    "tests/spark/test_fit.py::test_another_seed",
    "tests/spark/test_fit.py::test_rows_that_are_alike",
    "tests/spark/test_fit.py::test_the_same_rows_give_the_same_weights_bit_for_bit[array<float>",
    "tests/spark/test_fit.py::test_the_same_rows_give_the_same_weights_bit_for_bit[other order",
    "tests/spark/test_fit.py::test_workers_may_have_no_rows",
    "tests/spark/test_functions.py::test_a_function_takes_the_types",
    "tests/spark/test_functions.py::test_a_stream",
    "tests/spark/test_functions.py::test_rows_that_do_not_fit",
    "tests/spark/test_generated_rows.py",
    "tests/spark/test_graphs.py",
    "tests/spark/test_image_and_facts.py",
    "tests/spark/test_integers.py",
    "tests/spark/test_interpreter.py",
    "tests/spark/test_labelled_steps.py::test_a_prediction",
    "tests/spark/test_labelled_steps.py::test_it_is_saved",
    "tests/spark/test_labelled_steps.py::test_losses",
    "tests/spark/test_labelled_steps.py::test_rows_that_lack_them",
    "tests/spark/test_labelled_steps.py::test_segments_of",
    "tests/spark/test_labelled_steps.py::test_workers_take",
    "tests/spark/test_mlflow.py",
    "tests/spark/test_more_losses.py",
    "tests/spark/test_onnx_of_models.py",
    "tests/spark/test_outputs.py::test_a_fit_goes_on",
    "tests/spark/test_outputs.py::test_a_stream",
    "tests/spark/test_outputs.py::test_columns_are_named",
    "tests/spark/test_outputs.py::test_every_output_is",
    "tests/spark/test_outputs.py::test_it_is_saved",
    "tests/spark/test_outputs.py::test_settings",
    "tests/spark/test_outputs.py::test_the_summary",
    "tests/spark/test_outputs.py::test_workers_of_uneven",
    "tests/spark/test_params.py::test_a_train_validation_split",
    "tests/spark/test_params.py::test_cross_validation",
    "tests/spark/test_parts.py",
    "tests/spark/test_persistence.py::test_a_cross_validator",
    "tests/spark/test_persistence.py::test_a_model_comes_back_bit_for_bit[float32-DeepModel",
    "tests/spark/test_persistence.py::test_a_model_comes_back_bit_for_bit[float64-DeepModel",
    "tests/spark/test_persistence.py::test_a_model_comes_back_bit_for_bit[float64-DeepRegression",
    "tests/spark/test_persistence.py::test_a_pipeline",
    "tests/spark/test_persistence.py::test_any_hadoop",
    "tests/spark/test_persistence.py::test_models_come_back_from_within_others",
    "tests/spark/test_predictor.py",
    "tests/spark/test_pretrained_network.py",
    "tests/spark/test_python_workers.py::test_other_daemons",
    "tests/spark/test_python_workers.py::test_tracebacks",
    "tests/spark/test_quickstart.py",
    "tests/spark/test_ragged.py",
    "tests/spark/test_readme.py",
    "tests/spark/test_run.py::test_the_same_fit_again",
    "tests/spark/test_security.py::test_rows_stay",
    "tests/spark/test_sent_bytes.py::test_arrays_that_the_same_step",
    "tests/spark/test_sent_frames.py",
    "tests/spark/test_sequences.py::test_a_model_is_saved",
    "tests/spark/test_sequences.py::test_a_recurrent",
    "tests/spark/test_sequences.py::test_the_same_rows",
    "tests/spark/test_sequences.py::test_workers",
    "tests/spark/test_series.py::test_a_pipeline_with",
    "tests/spark/test_series.py::test_steps_of_the_calendar",
    "tests/spark/test_spark_docs.py",
    "tests/spark/test_tabular.py",
    "tests/spark/test_tokenizer.py::test_a_stream",
    "tests/spark/test_tokenizer.py::test_functions_of_sql",
    "tests/spark/test_tokenizer.py::test_it_comes_back",
    "tests/spark/test_transfer_learning.py::test_activations_of",
    "tests/spark/test_transfer_learning.py::test_the_loss_of_each_row",
    "tests/spark/test_transfer_learning.py::test_without_epochs",
    "tests/spark/test_transform.py::test_a_model_sends",
    "tests/spark/test_transform.py::test_vectors",
    "tests/spark/test_truncation.py::test_a_fit",
    "tests/spark/test_truncation.py::test_a_model",
    "tests/spark/test_truncation.py::test_a_stream",
    "tests/spark/test_truncation.py::test_inputs",
    "tests/spark/test_truncation.py::test_rows_of_more",
    "tests/spark/test_tuning.py::test_maps_of_equal_rows",
    "tests/spark/test_tuning.py::test_maps_that_read",
    "tests/spark/test_unchanged.py",
    "tests/test_benchmarks.py",
    "tests/test_drawing.py::test_every_text_fits_its_box[resnet18]",
    "tests/test_drawing.py::test_no_box",
    "tests/test_forecasting.py::test_a_relative",
    "tests/test_forecasting.py::test_convolutions_see",
    "tests/test_forecasting.py::test_quantiles_of_waves",
    "tests/test_forecasting.py::test_what_it_adds",
    "tests/test_generation.py::test_rows_go_on",
    "tests/test_generation.py::test_with_keys_and_values_kept",
    "tests/test_losses.py::test_a_weight_repeats",
    "tests/test_models.py::test_an_autoencoder",
    "tests/test_models.py::test_every_position",
    "tests/test_models.py::test_networks_of_tables_learn",
    "tests/test_models.py::test_two_towers_can",
    "tests/test_optimizers.py::test_what_is_named_does_not_decay[LAMB",
    "tests/test_pretrained.py::test_bytes",
    "tests/test_pretrained.py::test_weights_come",
    "tests/test_ready_networks.py",
    "tests/test_schedules.py::test_factors",
    "tests/test_sequence_models.py::test_a_character_model_writes",
    "tests/test_sequence_models.py::test_the_loss_falls[both",
    "tests/test_sequence_models.py::test_the_loss_falls[lstm",
    "tests/test_sequence_models.py::test_the_loss_falls[tcn",
    "tests/test_sequence_models.py::test_the_loss_falls[text",
    "tests/test_site.py",
    "tests/test_tensor_file.py::test_the_line",
    "tests/test_transformers.py::test_a_classifier",
    "tests/test_transformers.py::test_bert_is",
    "tests/test_transformers.py::test_features",
    "tests/test_transformers.py::test_gpt2",
    "tests/training/test_buckets.py::test_a_row_of_arrays",
    "tests/training/test_buckets.py::test_buckets_change_nothing_of_what_workers_come_to[(45, 45)",
    "tests/training/test_buckets.py::test_buckets_change_nothing_of_what_workers_come_to[(70, 0, 20)]",
    "tests/training/test_buckets.py::test_settings_tried_together",
    "tests/training/test_buckets.py::test_the_result_tells",
    "tests/training/test_constraints.py::test_they_hold",
    "tests/training/test_exchanges.py::test_a_run_that_was_interrupted",
    "tests/training/test_exchanges.py::test_averaging_every",
    "tests/training/test_exchanges.py::test_bfloat16",
    "tests/training/test_exchanges.py::test_parameter_averaging_is",
    "tests/training/test_free_memory.py",
    "tests/training/test_gloo.py::test_gloos_thread",
    "tests/training/test_graph_steps.py",
    "tests/training/test_in_batch.py",
    "tests/training/test_in_place.py::test_it_takes",
    "tests/training/test_logs.py::test_a_step_of_several",
    "tests/training/test_memory.py",
    "tests/training/test_object_store.py",
    "tests/training/test_own_code.py",
    "tests/training/test_parity.py::test_a_weight_counts_as_often_as_the_row_repeated[(24,)]",
    "tests/training/test_parity.py::test_few_rows",
    "tests/training/test_parity.py::test_so_they_do_with_convolution_penalties_clipping_decay_and_schedule[(21, 3)",
    "tests/training/test_parity.py::test_so_they_do_with_convolution_penalties_clipping_decay_and_schedule[(24,)",
    "tests/training/test_parity.py::test_so_they_do_with_convolution_penalties_clipping_decay_and_schedule[(9, 9, 6)",
    "tests/training/test_parity.py::test_workers_take_the_steps_of_one_process[AMSGrad()",
    "tests/training/test_parity.py::test_workers_take_the_steps_of_one_process[AdaBelief()",
    "tests/training/test_parity.py::test_workers_take_the_steps_of_one_process[AdaDelta()",
    "tests/training/test_parity.py::test_workers_take_the_steps_of_one_process[AdaGrad()",
    "tests/training/test_parity.py::test_workers_take_the_steps_of_one_process[AdaMax()",
    "tests/training/test_parity.py::test_workers_take_the_steps_of_one_process[Adam()-(21, 0, 3)-float32",
    "tests/training/test_parity.py::test_workers_take_the_steps_of_one_process[Adam()-(21, 3)",
    "tests/training/test_parity.py::test_workers_take_the_steps_of_one_process[Adam()-(24,)",
    "tests/training/test_parity.py::test_workers_take_the_steps_of_one_process[Adam()-(9, 9, 6)",
    "tests/training/test_parity.py::test_workers_take_the_steps_of_one_process[AdamW()",
    "tests/training/test_parity.py::test_workers_take_the_steps_of_one_process[LAMB()",
    "tests/training/test_parity.py::test_workers_take_the_steps_of_one_process[Lion()",
    "tests/training/test_parity.py::test_workers_take_the_steps_of_one_process[Momentum()",
    "tests/training/test_parity.py::test_workers_take_the_steps_of_one_process[NAdam()",
    "tests/training/test_parity.py::test_workers_take_the_steps_of_one_process[Nesterov()",
    "tests/training/test_parity.py::test_workers_take_the_steps_of_one_process[RAdam()",
    "tests/training/test_parity.py::test_workers_take_the_steps_of_one_process[RMSProp()",
    "tests/training/test_ragged_fits.py",
    "tests/training/test_resumption.py::test_a_schedule_of_another",
    "tests/training/test_resumption.py::test_a_schedule_that_knows_no_end",
    "tests/training/test_several_outputs.py::test_each_output_s_mean",
    "tests/training/test_sharded.py::test_runs_of_a_grid",
    "tests/training/test_sharded.py::test_two_workers_come_to_the_bits",
    "tests/training/test_sharded.py::test_what_is_fused",
    "tests/training/test_step_factors.py",
    "tests/training/test_step_labels.py::test_an_lstm_learns",
    "tests/training/test_step_labels.py::test_one_output_a_row",
    "tests/training/test_step_labels.py::test_padding_changes",
    "tests/training/test_step_labels.py::test_workers_together",
    "tests/training/test_tables.py",
    "tests/training/test_threshold.py::test_what_is_sent_and_what_is_kept_add_up_to_the_gradients[auto",
    "tests/training/test_timeline.py::test_a_browser",
    "tests/training/test_timeline.py::test_address_keys",
    "tests/training/test_together.py::test_runs_of_another",
    "tests/training/test_together.py::test_runs_together_come_to_what_each_comes_to_alone[sizes0",
    "tests/training/test_together.py::test_runs_together_come_to_what_each_comes_to_alone[sizes1",
    "tests/training/test_trainer.py::test_a_disk",
    "tests/training/test_trainer.py::test_a_network_of_two_inputs",
    "tests/training/test_trainer.py::test_bfloat16_learns",
    "tests/training/test_trainer.py::test_devices_share",
    "tests/training/test_trainer.py::test_no_jax_backend",
    "tests/training/test_truncated.py::test_a_segment_as_long",
    "tests/training/test_truncated.py::test_every_segment_takes_an_update_from_the_state_before_it[3, 3",
    "tests/training/test_truncated.py::test_every_segment_takes_an_update_from_the_state_before_it[4, 2]",
    "tests/training/test_truncated.py::test_every_segment_takes_an_update_from_the_state_before_it[numbered",
    "tests/training/test_truncated.py::test_statistics",
    "tests/training/test_truncated.py::test_what_lies_further_back",
    "tests/training/test_truncated.py::test_workers_together",
    "tests/training/test_unfreezing.py",
)
PEER = re.compile(r'importorskip\("(torch|tensorflow|transformers)"\)')


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where no slow test is wanted, do not import files of nothing else: some load Keras, PyTorch or MLflow."""
    if config.option.markexpr != "not slow":
        return None
    return f"{collection_path.relative_to(config.rootpath).as_posix()}/".startswith(SLOW) or None


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """Mark the slow ones, and those that compare with a peer; those on Spark come first, as they take longest."""
    items.sort(key=lambda item: not item.nodeid.startswith(ON_SPARK))
    if "peers" in config.option.markexpr:
        asks = {item: _asks_for_a_peer(item.function) for item in items if isinstance(item, pytest.Function)}
        for item in filter(asks.get, items):
            item.add_marker(pytest.mark.peers)
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)


@cache
def _asks_for_a_peer(test: Any) -> bool:
    """Whether a test, its file or a function there that it calls asks for PyTorch, TensorFlow or transformers."""
    module = vars(sys.modules[test.__module__])
    texts, seen = re.findall(r"^\w.*", inspect.getsource(sys.modules[test.__module__]), re.MULTILINE), [test]
    for function in seen:  # which grows
        texts.append(inspect.getsource(function))
        called = (module.get(name) for name in function.__code__.co_names)
        seen += [
            one for one in called if inspect.isfunction(one) and one.__module__ == test.__module__ and one not in seen
        ]
    return any(map(PEER.search, texts))


def pytest_collection_finish() -> None:
    """Look for garbage seldom, and not among what the tests import: JAX makes objects by the million when it traces."""
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files go to whichever process is free, but those that use a Spark session to one of two, which have one."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            if not file.startswith(ON_SPARK) or file.endswith(ALONE):
                return file
            return "one session" if file.startswith("tests/spark/") and file < "tests/spark/test_g" else "the other"

    config.option.loadscopereorder = False  # files of many tests are not those that take long
    return ByFile(config, log)


@pytest.fixture
def float64() -> Iterator[None]:
    """Compute in float64 for the length of a test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def unoptimized() -> Iterator[None]:
    """For files whose small programs take longer to compile than to run; workers compile as they do for users."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def as_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of training are compiled by the emitters that users have, for bits that depend on these."""
    if EMITTERS in os.environ.get("XLA_FLAGS", ""):
        monkeypatch.setitem(OPTIONS["cpu"], EMITTERS, True)
