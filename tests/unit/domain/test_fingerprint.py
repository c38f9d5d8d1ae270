"""Fingerprints: the published values, which paths are left out, how differences are told, what is secret."""

import copy
import json

import pytest

from ckptctl.domain.canonical import compact_digest, compact_sorted
from ckptctl.domain.config_paths import PathMatcher
from ckptctl.domain.fingerprint import (
    BUILT_IN_EXCLUDED_PATHS,
    bootstrap_fingerprint,
    bootstrap_identity,
    config_fingerprint,
    extra_excluded_paths,
    projection_differences,
    redact,
    secret_paths,
    topology_document,
    topology_fingerprint,
)
from ckptctl.domain.participant import Capabilities, DiscoveredParticipant, MultiProcess

EXAMPLE = {
    "grpo": {"seed": 42, "num_generations_per_prompt": 2},
    "token_capture": {"enabled": True, "staging_partition": "rollout_staging", "control_auth_token": "s3cret"},
    "checkpointing": {"save_period": 1},
    "env": {"nemo_gym": {"num_workers": 4, "tools": {"api_key": "k", "max_turns": 8}}},
    "rollout_checkpointing": {"keep_latest_k": 2},
}


def with_extra(*patterns):
    config = copy.deepcopy(EXAMPLE)
    config["rollout_checkpointing"]["extra_fingerprint_excluded_paths"] = list(patterns)
    return config


def test_published_values():
    """The pattern list and the three fingerprints of the reference have their digests."""
    assert 80 == len(BUILT_IN_EXCLUDED_PATHS) == len(set(BUILT_IN_EXCLUDED_PATHS))
    assert "38e0890306ccba1bb2049306047a2ab9e086f4632850381ccc9aa894b32a770d" == compact_digest(
        list(BUILT_IN_EXCLUDED_PATHS)
    )
    assert "9a08372696938d317331b26384e2b84611a9fc569863647ebadea69e22751068" == config_fingerprint({})
    assert "3c3c329197ada26d941b0ac33ea432c7742e242e7817d6b07c86e0ab7913131e" == config_fingerprint(EXAMPLE)
    assert "28095957864b7751a8afbe6a31b6228b90504a38a36def3e41625f22a19af88a" == config_fingerprint(
        with_extra("grpo.seed")
    )


def test_what_is_kept():
    """Excluded keys go with everything below them; an emptied parent stays."""
    identity = bootstrap_identity(EXAMPLE)

    assert {
        "grpo": EXAMPLE["grpo"],
        "token_capture": {"enabled": True, "staging_partition": "rollout_staging"},
        "env": {"nemo_gym": {"tools": {"max_turns": 8}}},
    } == identity.config
    assert {"policy": {}} == bootstrap_identity({"policy": {"optimizer": {"lr": 1}}}).config
    assert bootstrap_fingerprint(identity) == config_fingerprint(EXAMPLE)


@pytest.mark.parametrize(
    ("pattern", "path", "is_match"),
    [
        ("a", "a", True),
        ("a", "a.b", False),
        ("a.b", "a", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("*.b", "b", False),
        ("**.b", "b", True),
        ("**.b", "a.b", True),
        ("**.b", "a.c.b", True),
        ("**.b", "a.b.c", False),
        ("a.**.b", "a.b", True),
        ("a.**.b", "a.x.y.b", True),
        ("a.**.b", "x.a.b", False),
        ("a.**", "a", True),
        ("a.**", "a.b.c", True),
        ("**.**.b", "b", True),
        ("*_token", "auth_token", True),
        ("*_token", "AUTH_TOKEN", False),
        ("a?", "ab", True),
        ("a?", "a", False),
        ("[ab]c", "bc", True),
        ("[!ab]c", "bc", False),
        ("a.0.b", "a.0.b", True),
        ("a.[0-3]", "a.2", True),
        ("a+", "aa", False),
        ("", "", True),
    ],
)
def test_patterns(pattern, path, is_match):
    """Segments are matched one by one, case sensitive, the whole path; `**` stands for any number of segments."""
    matcher = PathMatcher([pattern])
    states = matcher.start
    for segment in path.split("."):
        states = matcher.step(states, segment)

    assert is_match == matcher.is_match(states)


def test_many_double_stars_cost_nothing():
    """A pattern of many `**` on a deep path is decided without trying every split."""
    matcher = PathMatcher([".".join(["**"] * 30 + ["x"])])
    states = matcher.start
    for _ in range(64):
        states = matcher.step(states, "a")

    assert not matcher.is_match(states)
    assert matcher.is_match(matcher.step(states, "x"))


def test_list_elements_have_decimal_segments():
    """An element of a list can be left out by its index; the others move up."""
    config = {"a": [{"b": 1}, {"b": 2, "token": "t"}, 3], "t": (1, 2)}

    assert {"a": [{"b": 2}, 3], "t": [1, 2]} == bootstrap_identity(config, ["a.0"]).config


@pytest.mark.parametrize("pattern", ["", "*", "**", " a", "a ", "a..b", ".a", "a."])
def test_unusable_extra_patterns(pattern):
    """Patterns that would exclude nothing or everything are refused for a fingerprint, and passed over in a comparison."""
    with pytest.raises(ValueError, match="is no usable pattern"):
        config_fingerprint(with_extra(pattern))

    assert () == projection_differences(EXAMPLE, with_extra(pattern))


@pytest.mark.parametrize("value", ["grpo.seed", 5, ["a", 1], {"a": 1}])
def test_extra_patterns_are_a_list_of_texts(value):
    """Anything else under that key is refused for a fingerprint, and passed over in a comparison."""
    config = {"rollout_checkpointing": {"extra_fingerprint_excluded_paths": value}}
    with pytest.raises(ValueError, match="must be a list of texts"):
        config_fingerprint(config)

    assert () == projection_differences({}, config)


def test_extra_patterns_may_be_absent():
    """No section, a section of another type, null and an empty list all mean none."""
    for section in (None, 5, {}, {"extra_fingerprint_excluded_paths": None}, {"extra_fingerprint_excluded_paths": []}):
        assert () == extra_excluded_paths({"rollout_checkpointing": section})


def test_what_has_no_fingerprint():
    """Keys that are no text, numbers that are not finite, and values that JSON does not have."""
    with pytest.raises(ValueError, match="`a` has a key that is no text: 1"):
        config_fingerprint({"a": {1: 2}})
    with pytest.raises(ValueError, match="not JSON compliant"):
        config_fingerprint({"a": float("inf")})
    with pytest.raises(ValueError, match="not JSON serializable"):
        config_fingerprint({"a": {1}})


def test_differences_are_told_by_path():
    """Changed, added and removed values are told; those without influence are not."""
    new = copy.deepcopy(EXAMPLE)
    new["grpo"] |= {"seed": 43, "lr": 0.5}
    new["checkpointing"] = {"save_period": 9}
    new["token_capture"]["enabled"] = 1
    del new["env"]["nemo_gym"]["tools"]
    new["list"] = [1, [2]]

    assert (
        'env.nemo_gym.tools {"max_turns":8} -> <absent>',
        "grpo.lr <absent> -> 0.5",
        "grpo.seed 42 -> 43",
        "list <absent> -> [1,[2]]",
        "token_capture.enabled true -> 1",
    ) == projection_differences(EXAMPLE, new)
    assert () == projection_differences(EXAMPLE, copy.deepcopy(EXAMPLE))


def test_differences_inside_lists():
    """Lists are compared element by element, also when one is longer."""
    assert ("a.1 2 -> 3", "a.2 <absent> -> 4") == projection_differences({"a": [1, 2]}, {"a": [1, 3, 4]})
    assert ("a.1 2 -> <absent>",) == projection_differences({"a": [1, 2]}, {"a": [1]})


def test_extra_patterns_are_a_difference_themselves():
    """The list of excluded paths is inside the hash, so a change of it is told."""
    assert ("grpo.seed 42 -> <absent>", 'excluded_paths [] -> ["grpo.seed"]') == projection_differences(
        EXAMPLE, with_extra("grpo.seed")
    )


def test_differences_are_clipped_and_safe():
    """A long value is cut to 160 characters, control characters are escaped, and what JSON lacks is still shown."""
    (line,) = projection_differences({"a": "x"}, {"a": "y" * 500})
    (odd,) = projection_differences({"a\x1b": "\x7f"}, {"a\x1b": float("nan")})

    assert f'a "x" -> "{"y" * 156}...' == line
    assert "a\\x1b " + '"\\u007f" -> nan' == odd


def test_secrets_are_found_and_replaced():
    """Values in clear under secret keys are named by path and replaced, everything else stays as it is."""
    config = {
        "api_key": "k",
        "a": [{"my_password": "p", "b": 1}, "text"],
        "token": {"nested": {"deep": 1}},
        "empty_token": "",
        "null_secret": None,
        "return_token": True,
        "list_secret": [],
        "done_token": "<redacted>",
        "pin_token": 1234,
        "tokens": 5,
        "Token": "upper case is another key",
        "tuple": (1, {"secret": "s"}),
    }
    before = copy.deepcopy(config)
    found = redact(config)

    assert ("api_key", "a.0.my_password", "token", "pin_token", "tuple.1.secret") == secret_paths(config)
    assert before == config
    assert () == secret_paths(found)
    assert {
        **config,
        "api_key": "<redacted>",
        "a": [{"my_password": "<redacted>", "b": 1}, "text"],
        "token": "<redacted>",
        "pin_token": "<redacted>",
        "tuple": [1, {"secret": "<redacted>"}],
    } == found


def a_participant(component, name, states, contract, role=None):
    capabilities = Capabilities(
        component=component,
        name=name,
        schema_version=1,
        admission_states=states,
        checkpoint_mode="export_restore",
        concurrency_contract=contract,
        multi_process=MultiProcess(mode="single_worker", num_workers=1),
        instance_role=role,
    )
    return DiscoveredParticipant(server_name=name, capabilities=capabilities)


def test_published_topology():
    """The topology of the reference has its length and digest, in whatever order the servers were discovered."""
    participants = [
        a_participant(
            "responses_api_models",
            "policy_model",
            ["paused", "accepting", "draining"],
            "transactional_parallel",
            "policy",
        ),
        a_participant("responses_api_agents", "policy_agent", ["accepting"], "serialized_per_session"),
        a_participant("resources_servers", "tools", ["accepting"], "serialized_per_session"),
    ]

    assert "90e4b6b5cb218f71963343690df722c82058815c2d50db9ef969970d672ec50e" == topology_fingerprint(participants)
    assert topology_fingerprint(participants) == topology_fingerprint(reversed(participants))
    assert 1031 == len(compact_sorted(topology_document(participants)))


def test_topology_depends_on_workers_but_not_on_features():
    """Worker counts are part of the topology, features and live state are not."""
    one = a_participant("resources_servers", "tools", ["accepting"], "stateless")
    live = one.model_copy(
        update={"capabilities": one.capabilities.model_copy(update={"features": ["x"], "phase": "prepared"})}
    )
    two_workers = MultiProcess(mode="coordinator", num_workers=2)
    other = one.model_copy(update={"capabilities": one.capabilities.model_copy(update={"multi_process": two_workers})})

    assert topology_fingerprint([one]) == topology_fingerprint([live])
    assert topology_fingerprint([one]) != topology_fingerprint([other])
    assert "features" not in json.dumps(topology_document([live]))
