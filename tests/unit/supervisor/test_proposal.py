"""A proposed profile is one that TensorRT takes, and usual for what a dimension is called."""

from hypothesis import given
from hypothesis import strategies as st

from trt_agent_tools.model.findings import TensorInfo
from trt_agent_tools.model.options import BuildOptions, Profile, ShapeRange
from trt_agent_tools.supervisor import proposal
from trt_agent_tools.supervisor.proposal import dynamic_inputs, missing_profiles, propose

IMAGE = TensorInfo("image", "float32", ["batch", 3, "height", "width"])
IDS = TensorInfo("ids", "int64", ["batch", "sequence"])
FIXED = TensorInfo("fixed", "float32", [1, 8])
RANKLESS = TensorInfo("rankless", "float32", None)


def shapes(low: int, usual: int, high: int) -> ShapeRange:
    return ShapeRange(min=[low] * 2, opt=[usual] * 2, max=[high] * 2)


def test_an_image_gets_batches_of_images() -> None:
    bounds = propose([IMAGE], {})["image"]
    assert (bounds.min, bounds.opt, bounds.max) == (
        [1, 3, 128, 128],
        [4, 3, 224, 224],
        [16, 3, 640, 640],
    )


def test_text_gets_batches_of_sequences() -> None:
    bounds = propose([IDS], {})["ids"]
    assert (bounds.min, bounds.opt, bounds.max) == ([1, 1], [4, 128], [16, 512])


def test_dimensions_without_a_name_are_known_by_their_place() -> None:
    image = TensorInfo("x", "float16", ["?", "?", "?", "?"])
    ids = TensorInfo("ids", "int64", ["?", "?"])
    assert propose([image], {})["x"].opt == [4, 3, 224, 224]
    assert propose([ids], {})["ids"].opt == [4, 128]


def test_a_cache_and_what_is_new_add_up() -> None:
    tensors = [
        TensorInfo("ids", "int64", ["batch", "sequence_length"]),
        TensorInfo("past.0", "float16", ["batch", 8, "past_sequence_length", 64]),
        TensorInfo("mask", "int64", ["batch", "past_sequence_length + sequence_length"]),
    ]
    proposed = propose(tensors, {})
    for bound in ("min", "opt", "max"):
        ids, past, mask = (getattr(proposed[tensor.name], bound) for tensor in tensors)
        assert mask[1] == ids[1] + past[2]


def test_what_was_given_is_kept_and_holds_for_dimensions_of_the_same_name() -> None:
    given: Profile = {"ids": ShapeRange(min=[2, 7], opt=[2, 8], max=[3, 9])}
    proposed = propose([IMAGE, IDS], given)
    assert (proposed["ids"].min, proposed["ids"].max) == ([2, 7], [3, 9])
    assert (proposed["image"].min[0], proposed["image"].max[0]) == (2, 3)


def test_only_dynamic_inputs_need_profiles() -> None:
    assert dynamic_inputs([IMAGE, FIXED, RANKLESS]) == ["image", "rankless"]
    assert list(propose([IMAGE, FIXED, RANKLESS], {})) == ["image"]


def test_an_input_is_missing_unless_every_profile_has_it() -> None:
    both: Profile = {"image": shapes(1, 2, 3), "ids": shapes(1, 2, 3)}
    one: Profile = {"ids": shapes(1, 2, 3)}
    inputs = [IMAGE, IDS, FIXED]
    assert missing_profiles(inputs, []) == ["image", "ids"]
    assert missing_profiles(inputs, [one]) == ["image"]
    assert missing_profiles(inputs, [both]) == []
    assert missing_profiles(inputs, [both, one]) == ["image"]


sizes = st.one_of(
    st.integers(0, 2000),
    st.sampled_from(["?", "N", "batch_size", "seq_len", "h", "W", "channels", "total_seq", "abc"]),
    st.text(min_size=1, max_size=5),
)
inputs = st.lists(
    st.builds(
        TensorInfo,
        st.text(min_size=1, max_size=5),
        st.sampled_from(["float32", "int64", "sequence(float32)"]),
        st.none() | st.lists(sizes, max_size=proposal.MAX_RANK + 1),
    ),
    max_size=4,
    unique_by=lambda tensor: tensor.name,
)


@given(inputs)
def test_every_proposal_is_a_valid_profile_that_fits_its_inputs(tensors: list[TensorInfo]) -> None:
    proposed = propose(tensors, {})
    told = {name: bounds.model_dump() for name, bounds in proposed.items()}
    BuildOptions.model_validate({"profiles": [told]} if told else {})
    ranges: dict[str, tuple[int, int, int]] = {}
    for tensor in tensors:
        if tensor.name not in proposed:
            continue
        bounds = proposed[tensor.name]
        assert tensor.shape is not None
        for axis, size in enumerate(tensor.shape):
            found = (bounds.min[axis], bounds.opt[axis], bounds.max[axis])
            if isinstance(size, int):
                assert found == (size, size, size)
            elif size != "?":
                assert ranges.setdefault(size, found) == found
