"""What may stand in a support bundle as it is: names, words and numbers that are of the format and not of the run.

Allow-lists only. Whatever is not named here is replaced by its type and size (`formats.redaction`), so that a field that somebody
adds tomorrow says nothing until somebody has looked at it. A name is the schema's own; a word is one that the formats define; a
number is a count, a size, a time or a version. Token ids, log-probabilities, rewards, texts, ids and digests are not here.
"""

from __future__ import annotations

import re

NUMBERS = frozenset(
    """
    active_keys admission_open_s at attempt attempt_index attempts base_train_step boundary_index bytes bytes_checked
    bytes_total capacity carry_len columns consumed_samples continuation_roots control_timeout_s count created_at cum_len
    current_epoch current_step data_plane_checkpoint_schema_version deadline_s delta_len digest_version end_weight epoch
    excluded_inactive excluded_tombstoned expected_generations expected_token_length exit_code extras_digest_version
    failed_rollouts files files_checked files_total fingerprint_version generation_cut_records generation_index generation_len
    global_indexes global_step grace_period_s group_count indexes keep_latest_k keys ledger_groups lines max_row_attempts
    members min_valid_copies mode_bits modified_s mutation_version names next_index num_generations_per_prompt
    num_storage_units number position prepare_timeout_s pre_allocated prev_len produced production_columns production_rows
    records replay_group_count replay_metadata_schema_version request_count restore_level reusable_indexes revision
    rollback_count rolled_back_train_group_count rollout_count rollout_recovery_group_count rollout_recovery_schema_version
    rollouts row_count rows sampler_dispatch_index save_period saved_capacity schema_found schema_version seconds
    sequence_lengths sessions single_controller_epoch single_controller_train_steps single_controller_trainer_version
    size_bytes size snapshot_attempt_interval_s staged_route_len start_weight start_weight_version state_revision step_number
    target_step total_steps total_valid_tokens train_step trainer_version turn_index unfinished_rollouts weight_version
    written_at
    """.split()  # noqa: SIM905  # a list of a hundred quoted words is harder to read and to check
)
FLAGS = frozenset(
    """
    capability_discovery_enabled capture_poisoned checkpointing_enabled enabled has_gym incompatible is_nested is_non_tensor
    is_seekable mask_sample participant_checkpointing_enabled recovered sampler_stamps_target_steps save_data_plane
    storage_saved
    """.split()  # noqa: SIM905
)
NAMES = frozenset(
    """
    acknowledgements admission_id agent agent_name agents anchor archive archives artifact async_rl batch_shortfall
    bootstrap_fingerprint bootstrap_identity boundary_kind boundary_model_call_id capture_key checkpoint_dir checkpoint_id
    checkpointing chain_hash ckptctl cleanup_staging_keys code completion_receipt component config continuation_index
    continuation_roots_sha256 controller controller_id controller_instance_id cumulative_hash data_plane digest event
    excluded_paths execution_generation expected extra_info extras_digest failure_reason fields final findings folder
    generation_cuts_sha256 going group_id groups grpo gym gym_checkpoint gym_topology_fingerprint hint instance_name kind
    last_committed_model_call_id ledger level lineage_index location manifest manifest_capture_key manifest_digest
    manifest_sha256 member message meta mode model_call_id models name nemo_gym notes outcome outcomes parent_call_id
    participant participant_name participants partition_id partitions path payload
    pending_completed_execution_acknowledgements phase plan policy prompt_id prompt_ref reason reasons receipt record_index
    recovery_granularity relative_path replay_manifest_digest resolved_agent_name resource_state_revisions resources
    restore_mode result_digest result_identity rollout_checkpointing rollout_failure rollout_id
    rollout_recovery_payload_sha256 route_assembly_plan rule sample_id sample_ids sampler_name server_name server_names
    session set_aside severity sha256 siblings snapshot source_attempts spans staged staging_digest staging_key staging_keys
    staging_partition status step steps storage storage_reference_index storage_unit_id tags targets task_name task_source
    terminal_model_call_id terminal_selection token_capture tombstones tool_version topology_fingerprint transaction
    trash_entry undelete unit units user_metadata value verdict
    """.split()  # noqa: SIM905
)
KEYS = NUMBERS | FLAGS | NAMES
"""Names of fields; of any other one only the length is told."""
WORDS = frozenset(
    """
    abandoned abort aborted authoritative begin bootstrap bootstrap_only breach checkpoint_dir close collected commit continue
    could_not_run data_plane delete dispatched drain error export_restore failed failure file directory finalization_unknown
    finalizing finish full gap gc generating generation gone held_open incomplete incompatible information intent invalid keep
    kept latest moved more none nothing_to_do open outcome pack pass passed pending_model pinned planned prepare prompt_group
    publish published quick ready_to_finalize recovery release released reserved resources_servers responses_api_agents
    responses_api_models restart restart_only restore restored resume rollout_staging save sealed sibling skipped snapshot
    standard stateless step_anchor symlink tmp tq_checkpoint train trainer_checkpoint trash trashed turn_complete undeleted
    unpinned valid validate warning
    """.split()  # noqa: SIM905
)
WORD_FIELDS = frozenset(
    """
    action boundary_kind component event kind level mode outcome phase recovery_granularity restore_mode severity status step
    storage terminal_selection verdict
    """.split()  # noqa: SIM905
)
"""Fields whose value may be one of `WORDS`; anywhere else even such a word is a text."""
PATH_FIELDS = frozenset({"archive", "final", "member", "path", "relative_path", "snapshot", "staged"})
"""Fields whose value is a path, of which the names of the layout are harmless."""
FILE_NAMES = frozenset(
    """
    agent agent-index.jsonl bootstrap ckptctl-checksums.json config.yaml continuations.jsonl controller_state.pkl data_plane
    journal latest lineage-index.jsonl manifest.json metadata.json model-ledger replacement_reserve.pt replay_buffer.pt
    replay_buffer_metadata.pt resources rollout_recovery.pt rollout_snapshots simple_storage storage-references.jsonl
    storage_unit_info.json train_dataloader.pt training_info.json
    """.split()  # noqa: SIM905
)
NUMBERED_FILE = re.compile(r"(?:(?:tmp_|trash_)?snapshot_|step_)[0-9]{1,9}|(?:agent|lineage)-part-[0-9]{6}\.tar")
EXTENSION = re.compile(r"\.(?:json|jsonl|yaml|pt|pkl|tar|bin|blobs|tmp)\Z")
PLACE = re.compile(r"(?:line|byte|compressed byte|row|frame|column) [0-9]{1,12}")
"""Where in a file a finding is, when it is a number."""
