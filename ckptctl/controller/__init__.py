"""The server half of the controller interface, as a library.

Give `create_app` a `RolloutController` and serve what it returns:

    app = create_app(MyController(), token=os.environ["NEMO_GYM_CHECKPOINT_CONTROL_TOKEN"])

The application keeps the protocol (credential, validation, fence, phases, deadlines); the controller does the work. Where its
rows are in a live TransferQueue, `LiveTransferQueue` saves and loads them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckptctl.controller.app import create_app, openapi_document
    from ckptctl.controller.interface import ControllerFacts, RolloutController
    from ckptctl.controller.live_tq import LiveTransferQueue
    from ckptctl.controller.refusal import RefusalError

__all__ = [
    "ControllerFacts",
    "LiveTransferQueue",
    "RefusalError",
    "RolloutController",
    "create_app",
    "openapi_document",
]

_HOMES = {
    "create_app": "app",
    "openapi_document": "app",
    "ControllerFacts": "interface",
    "RolloutController": "interface",
    "LiveTransferQueue": "live_tq",
    "RefusalError": "refusal",
}


def __getattr__(name: str) -> Any:
    # Looked up when asked for: who only shares the fence need not wait for FastAPI.
    if name not in _HOMES:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
