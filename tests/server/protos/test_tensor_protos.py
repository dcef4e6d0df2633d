"""Arrays to TensorProto messages and back, compared with TensorFlow's own conversion."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from server.errors import ServingError
from server.protos.modules import load_protos
from server.protos.tensors import fill_proto, fill_typed, to_array
from server.tensors import DTYPES, Kind, dtype_of_name, dtype_of_numpy

NUMERIC = [d.name for d in DTYPES if d.numpy_name and d.kind is not Kind.STRING]
FILL = pytest.mark.parametrize("fill", [fill_proto, fill_typed])


def message():
    # Use the stub's own messages: importing TensorFlow's would run TensorFlow.
    return load_protos().PredictRequest().inputs["x"]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_the_list_of_element_types_agrees_with_the_messages(dtype):
    contents = load_protos().InferTensorContents.DESCRIPTOR.fields_by_name
    assert dtype.contents in ["", *contents]
    assert bool(dtype.field) == bool(dtype.numpy_name)
    if dtype.numpy_name:
        fields = message().DESCRIPTOR.fields_by_name
        assert dtype.field in fields
        assert dtype_of_numpy(dtype.numpy) is dtype
        numbers = fields["dtype"].enum_type.values_by_number
        assert numbers[dtype.number].name == dtype.enum_name


@pytest.mark.each_choice
@FILL
@pytest.mark.parametrize("name", NUMERIC)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_numbers_survive_the_way_there_and_back(name, fill, data):
    dtype = dtype_of_name(name)
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
    drawn = np.float32 if name == "bfloat16" else dtype.numpy
    array = data.draw(hnp.arrays(drawn, shapes)).astype(dtype.numpy)
    proto = message()
    fill(proto, array)
    read = to_array(proto)
    assert (read.dtype, read.shape) == (array.dtype, array.shape)
    assert read.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("float", "float_val"),
        ("double", "double_val"),
        ("bool", "bool_val"),
        ("int8", "int_val"),
        ("uint16", "int_val"),
        ("int64", "int64_val"),
        ("uint32", "uint32_val"),
        ("uint64", "uint64_val"),
        ("half", "half_val"),
        ("complex64", "scomplex_val"),
    ],
)
@pytest.mark.parametrize("count", [3, 200])
def test_answers_lie_in_the_field_of_their_type(name, field, count):
    dtype = dtype_of_name(name)
    array = np.arange(-(count // 2), count - count // 2).astype(dtype.numpy)
    proto = message()
    fill_typed(proto, array)
    assert not proto.tensor_content
    parts = array.view(np.uint16) if name == "half" else array
    parts = array.view(np.float32) if name == "complex64" else parts
    assert list(getattr(proto, field)) == parts.tolist()


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("uint8", "int_val", 300),
        ("int8", "int_val", -129),
        ("int16", "int_val", 70000),
        ("uint16", "int_val", -1),
        ("half", "half_val", 65536),
        ("bfloat16", "half_val", -1),
    ],
)
def test_numbers_that_do_not_fit_are_refused(name, field, value):
    proto = message()
    proto.dtype = dtype_of_name(name).number
    proto.tensor_shape.dim.add().size = 2
    getattr(proto, field).extend([1, value])
    with pytest.raises(ServingError, match=rf"values of u?int\d+ in {field}. Received: {value}$"):
        to_array(proto)


@pytest.mark.slow
@FILL
@pytest.mark.parametrize("name", NUMERIC)
def test_tensorflow_reads_what_is_written_and_writes_what_is_read(name, fill):
    import tensorflow as tf

    dtype = dtype_of_name(name)
    array = np.arange(6).reshape(2, 3).astype(dtype.numpy)
    proto = message()
    fill(proto, array)
    np.testing.assert_array_equal(tf.make_ndarray(proto), array)
    for values in (array, np.ones((2, 3), dtype.numpy), np.zeros((0, 2), dtype.numpy)):
        np.testing.assert_array_equal(to_array(tf.make_tensor_proto(values)), values)


def test_strings_and_values_that_repeat():
    proto = message()
    array = np.array([[b"a", b"\xff\x00"]], object)
    fill_proto(proto, array)
    assert to_array(proto).tolist() == array.tolist()
    proto = message()
    proto.dtype = 1
    proto.tensor_shape.dim.add().size = 3
    proto.float_val.append(2.5)
    assert to_array(proto).tolist() == [2.5] * 3
    del proto.float_val[:]
    assert to_array(proto).tolist() == [0.0] * 3


@pytest.mark.parametrize(
    ("dtype", "sizes", "content", "error"),
    [
        (1, [3], b"1234", "must not have 4 bytes"),
        (1, [-1], b"", "known size"),
        (1, [2**40, 2**40], b"", "known size"),
        (1, [2**25], b"", "only 0 values"),
        (7, [1], b"abcd", "bytes of content"),
        (20, [1], b"", "not supported"),
        (0, [1], b"", "not supported"),
    ],
)
def test_messages_that_are_no_tensors(dtype, sizes, content, error):
    proto = message()
    proto.dtype = dtype
    proto.tensor_content = content
    for size in sizes:
        proto.tensor_shape.dim.add().size = size
    with pytest.raises(ServingError, match=error):
        to_array(proto)
