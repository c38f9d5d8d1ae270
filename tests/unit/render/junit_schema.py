"""What the two public schemas of JUnit XML allow, as tables: Apache Ant's (`JUnit.xsd`) and that of Jenkins' xUnit plugin (`junit-10.xsd`)."""

import re
from xml.etree import ElementTree as ET

TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
INT, NUMBER, NAME, ANY = r"-?[0-9]+", r"-?[0-9]*\.?[0-9]+", r"(?s).+", r"(?s).*"
ONE, MANY, ONE_OF = "one", "many", "at most one of these"

ANT = {
    "testsuites": ({}, {}, [("testsuite", MANY)]),
    "testsuite": (
        {
            "package": ANY, "id": INT, "name": NAME, "timestamp": TIME, "hostname": NAME,
            "tests": INT, "failures": INT, "errors": INT, "time": NUMBER,
        },
        {"skipped": INT},
        [("properties", ONE), ("testcase", MANY), ("system-out", ONE), ("system-err", ONE)],
    ),
    "properties": ({}, {}, [("property", MANY)]),
    "property": ({"name": NAME, "value": ANY}, {}, []),
    "testcase": ({"name": ANY, "classname": ANY, "time": NUMBER}, {}, [("skipped error failure", ONE_OF)]),
    "failure": ({"type": ANY}, {"message": ANY}, []),
    "error": ({"type": ANY}, {"message": ANY}, []),
    "skipped": ({}, {"type": ANY, "message": ANY}, []),
    "system-out": ({}, {}, []),
    "system-err": ({}, {}, []),
}  # fmt: skip
"""Element -> attributes that must be there, that may be there, children in order."""

JENKINS = {
    "testsuites": ({}, dict.fromkeys(("name", "time", "tests", "failures", "errors"), ANY), [("testsuite", MANY)]),
    "testsuite": (
        {"name": ANY, "tests": ANY, "failures": ANY, "errors": ANY},
        {
            "group": ANY, "time": r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]*)?", "skipped": ANY, "timestamp": ANY, "hostname": ANY,
            "id": ANY, "package": ANY, "file": ANY, "log": ANY, "url": ANY,
        },
        [("testsuite properties testcase system-out system-err", MANY)],
    ),
    "properties": ({}, {}, [("property", MANY)]),
    "property": ({"name": ANY, "value": ANY}, {}, []),
    "testcase": (
        {"name": ANY},
        {"time": ANY, "classname": ANY, "group": ANY},
        [("skipped error failure rerunFailure rerunError flakyFailure flakyError system-out system-err", MANY)],
    ),
    **{name: ({}, {"type": ANY, "message": ANY}, []) for name in ("failure", "error", "skipped")},
    "system-out": ({}, {}, []),
    "system-err": ({}, {}, []),
}  # fmt: skip


def breaches(text, schema):
    """Every way in which a document does not fit; the text must be well-formed."""
    root = ET.fromstring(text)
    if root.tag != "testsuites":
        return [f"root is {root.tag}"]
    return [problem for element in root.iter() for problem in _breaches_of(element, schema)]


def _breaches_of(element, schema):
    if element.tag not in schema:
        yield f"unknown element {element.tag}"
        return
    required, optional, children = schema[element.tag]
    for name in required.keys() - element.attrib.keys():
        yield f"{element.tag} lacks {name}"
    for name, value in element.attrib.items():
        pattern = {**optional, **required}.get(name)
        if pattern is None or re.fullmatch(pattern, value) is None:
            yield f"{element.tag}: {name}={value!r}"
    left = [child.tag for child in element]
    for names, how_many in children:
        allowed, count = names.split(), 0
        while left and left[0] in allowed and (how_many == MANY or count == 0):
            left.pop(0)
            count += 1
        if how_many == ONE and count != 1:
            yield f"{element.tag} lacks {names}"
    if left:
        yield f"{element.tag} holds {left}"
