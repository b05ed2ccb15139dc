"""Which operators a library is known not to take."""

from collections.abc import Iterable, Sequence

from trt_agent_tools.model.findings import Operator
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.library import Library
from trt_agent_tools.worker.library_types import OnnxParser
from trt_agent_tools.worker.plugins import load_plugins
from trt_agent_tools.worker.settings import Report


class UnknownError(Exception):
    """The library does not tell; the text says why, for the reader."""


def not_taken(
    library: Library, operators: Iterable[Operator], plugins: Sequence[str], report: Report
) -> list[Operator]:
    """Return those of `operators` that the library's parser has nothing for, in their order.

    The parser goes by the type alone, whatever the domain, and asks the plugins by that name next. An
    operator that it has may still be refused for its opset, its types or its attributes: only a build
    finds that out. What the model defines as functions is not to be among `operators`.

    Raises:
        UnknownError: this library does not tell, or not here.
    """
    module = library.module
    if not hasattr(module.OnnxParser, "supports_operator"):
        raise UnknownError(
            f"this version of {library.backend} does not tell which operators it takes"
        )
    logger = module.Logger(module.Logger.ERROR)
    try:
        builder = module.Builder(logger)
        network = builder.create_network()
        if network is None:
            raise UnknownError(f"{library.backend} makes no network")
        parser: OnnxParser = module.OnnxParser(network, logger)
    except TypeError as error:
        # pybind11's word for a null pointer: classic TensorRT makes no builder without a GPU.
        raise UnknownError(
            f"{library.backend} tells which operators it takes only on a GPU, and looking takes none"
        ) from error
    module.init_libnvinfer_plugins(logger, "")
    try:
        load_plugins(library, plugins, report)
    except BuildFault as fault:
        raise UnknownError(fault.info.message) from fault
    made = _plugin_names(library)
    return [
        operator
        for operator in operators
        if not parser.supports_operator(operator.type) and operator.type not in made
    ]


def _plugin_names(library: Library) -> set[str]:
    registry = library.module.get_plugin_registry()
    return set() if registry is None else {creator.name for creator in registry.all_creators}
