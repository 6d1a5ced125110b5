"""What a stateful optimizer keeps, as the wire reference has it: documents by name."""

from collections.abc import Callable
from typing import Any

Document = dict[str, Any]


class MissingError(Exception):
    """Nothing has that name."""


class Store:
    """Documents in dictionaries; `call` is one request to it."""

    def __init__(self) -> None:
        self.accelerators: dict[str, Document] = {}
        self.capacity: dict[str, int] = {}
        self.models: dict[str, dict[str, Document]] = {}
        self.classes: dict[str, Document] = {}
        self.servers: dict[str, Document] = {}

    def call(self, path: list[str], body: Any) -> Any:  # noqa: ANN401 - JSON
        """The answer to one request.

        Raises
        ------
        MissingError
            There is no such path or object.
        """
        name, *arguments = path
        if name.startswith("remove"):
            return self._remove(name, *arguments)
        answers: dict[str, Callable[[], object]] = {
            "getAccelerators": lambda: list(self.accelerators.values()) or None,
            "getCapacities": lambda: {"count": self._counts() or None},
            "getModels": lambda: list(self.models) or None,
            "getModel": lambda: {"models": list(self._model(*arguments).values()) or None},
            "getServiceClasses": lambda: {"serviceClasses": list(self.classes.values()) or None},
            "getServers": lambda: {"servers": list(self.servers.values()) or None},
            "setAccelerators": lambda: self._upsert(self.accelerators, body["accelerators"]),
            "setCapacities": lambda: self.capacity.update(
                {item["type"]: item["count"] for item in body["count"]}
            ),
            "setModels": lambda: self._set_models(body["models"]),
            "setServiceClasses": lambda: self._upsert(self.classes, body["serviceClasses"]),
            "setServers": lambda: self._upsert(self.servers, body["servers"]),
        }
        if name not in answers:
            raise MissingError("404 page not found")
        return answers[name]()

    def system(self, options: Document) -> Document:
        profiles = [data for model in self.models.values() for data in model.values()]
        return {
            "system": {
                "acceleratorData": {"accelerators": list(self.accelerators.values())},
                "capacityData": {"count": self._counts()},
                "modelData": {"models": profiles},
                "serviceClassData": {"serviceClasses": list(self.classes.values())},
                "serverData": {"servers": list(self.servers.values())},
                "optimizerData": {"optimizer": options},
            }
        }

    def _counts(self) -> list[Document]:
        return [{"type": name, "count": count} for name, count in self.capacity.items()]

    def _model(self, name: str) -> dict[str, Document]:
        if name not in self.models:
            raise MissingError(f"model {name} not found")
        return self.models[name]

    def _set_models(self, items: list[Document]) -> None:
        for item in items:
            self.models.setdefault(item["name"], {})[item["acc"]] = item

    @staticmethod
    def _upsert(kept: dict[str, Document], items: list[Document]) -> None:
        kept.update({item["name"]: item for item in items})

    def _remove(self, name: str, *arguments: str) -> object:
        kept: dict[str, dict[str, Any]] = {
            "removeAccelerator": self.accelerators,
            "removeCapacity": self.capacity,
            "removeModel": self.models,
            "removeModelAcceleratorPerf": self._model(arguments[0]) if len(arguments) > 1 else {},
            "removeServiceClass": self.classes,
            "removeServer": self.servers,
        }
        if name not in kept or arguments[-1] not in kept[name]:
            raise MissingError(f"{arguments[-1]} not found")
        return kept[name].pop(arguments[-1])
