"""Patterns of configuration paths (snapshot-layout section 4): which keys take no part in a fingerprint, which hold secrets.

Paths are tuples of segments; elements of a list are counted from 0. Patterns are written with dots: a plain segment is a shell
glob to which upper and lower case matter, `**` swallows any number of segments, none included, and nothing of the path may be
left over.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

SECRET_NAMES = ("api_key", "apikey", "password", "secret", "token", "*_api_key", "*_password", "*_secret", "*_token")
SECRET_PATTERNS = tuple(f"**.{name}" for name in SECRET_NAMES)
"""Which keys hold secrets, wherever they lie."""

_ENV_NAMES = """
    _copy _inherit_from allow_openai_version_skew api_server_count apptainer_memory_limit_mb cache_dir component_name concurrency
    config_paths debug default_host disallowed_ports dry_run entrypoint global_aiohttp_connector_limit
    global_aiohttp_connector_limit_per_host head_server head_server_deps json model_call_capture_dir
    model_endpoint_readiness_timeout_seconds nemo_gym_log_dir num_gpu_nodes num_processes num_workers observability_enabled
    pip_install_verbose policy_base_url port_range_high port_range_low python_version query ray_head_node_address
    ray_worker_py_executable results_dir should_log_nemo_gym_responses skip_venv_if_present token_id_capture use_absolute_ip
    uv_cache_dir uv_pip_set_python uv_venv_dir verbose
"""

_JUDGE_URLS = """
    genrm_model.responses_api_models.genrm_model.base_url
    nl2bash_judge_model.responses_api_models.local_vllm_model.base_url
"""

_GROUPS: tuple[tuple[str, str], ...] = (
    ("async_rl.", "diagnostics generation_fleet_health generation_router stall_watchdog"),
    ("", "checkpointing cluster logger rollout_checkpointing"),
    ("data.", "num_workers validation"),
    ("policy.", "optimizer scheduler"),
    ("policy.generation.", "colocated port_range_high port_range_low val_temperature val_top_k val_top_p"),
    ("policy.generation.vllm_cfg.", "env_vars http_refit_api_key_env_var http_refit_server_port zmq_refit_server_port"),
    ("token_capture.", "capture_dir control_auth_token control_timeout_s num_reassembler_workers"),
    ("**.", " ".join(SECRET_NAMES)),
    ("env.**.", _ENV_NAMES),
    ("env.nemo_gym.", _JUDGE_URLS),
)

BUILT_IN_EXCLUDED_PATHS: tuple[str, ...] = tuple(
    sorted(prefix + name for prefix, names in _GROUPS for name in names.split())
)
"""The 80 patterns of identity schema 7."""

States = frozenset[tuple[int, int]]
"""Positions (pattern, segment) that the path so far has reached."""


class PathMatcher:
    """Several patterns followed at once, one path segment at a time, so that `**` costs no backtracking."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = tuple(tuple(map(_segment, pattern.split("."))) for pattern in patterns)
        self.start: States = self._closed((index, 0) for index in range(len(self._patterns)))

    def step(self, states: States, segment: str) -> States:
        """The positions after one more segment."""
        reached: list[tuple[int, int]] = []
        for index, position in states:
            pattern = self._patterns[index]
            if position == len(pattern):
                continue
            wanted = pattern[position]
            if wanted is None:
                reached.append((index, position))
            elif wanted == segment if isinstance(wanted, str) else wanted.match(segment):
                reached.append((index, position + 1))
        return self._closed(reached)

    def is_match(self, states: States) -> bool:
        """Whether some pattern is matched as a whole."""
        return any(position == len(self._patterns[index]) for index, position in states)

    def _closed(self, states: Iterable[tuple[int, int]]) -> States:
        """`states` with those that follow because `**` may stand for nothing."""
        closed: set[tuple[int, int]] = set()
        for index, position in states:
            at = position
            closed.add((index, at))
            while at < len(self._patterns[index]) and self._patterns[index][at] is None:
                at += 1
                closed.add((index, at))
        return frozenset(closed)


def _segment(text: str) -> str | re.Pattern[str] | None:
    """One segment of a pattern: None for `**`, a literal, or a glob."""
    if text == "**":
        return None
    return re.compile(fnmatch.translate(text)) if any(character in text for character in "*?[") else text
