"""TensorFlow Serving's own client asks a gateway that serves version 3 of `make_models.py`.

`python ask_tensorflow_serving.py GRPC_PORT`; runs where `tensorflow-serving-api` is installed.
"""

import sys

import grpc
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

RANKER = {"name": "ranker"}


def ask_predict(stub):
    """Reads each output from the typed field that TensorFlow Serving fills, such as `float_val`."""
    request = predict_pb2.PredictRequest(model_spec=RANKER)
    request.inputs["user"].CopyFrom(tf.make_tensor_proto([7, 0], tf.int64))
    request.inputs["item"].CopyFrom(tf.make_tensor_proto([b"lamp", b""]))
    answer = stub.Predict(request, timeout=60)
    assert answer.model_spec.version.value == 3
    outputs = answer.outputs
    assert list(outputs["score"].float_val) == [7.5, 0.0]
    assert list(outputs["user"].int64_val) == [7, 0]
    assert list(outputs["version"].int_val) == [3, 3]
    assert not any(output.tensor_content for output in outputs.values())
    assert tf.make_ndarray(outputs["score"]).tolist() == [7.5, 0.0]
    request.output_filter.append("user")
    assert list(stub.Predict(request, timeout=60).outputs) == ["user"]


def ask_lookup(stub):
    """Looks up embeddings through the signature `de_lookup/item`."""
    request = predict_pb2.PredictRequest(model_spec=RANKER)
    request.model_spec.signature_name = "de_lookup/item"
    request.inputs["ids"].CopyFrom(tf.make_tensor_proto([b"lamp", b"?"]))
    outputs = stub.Predict(request, timeout=60).outputs
    assert tf.make_ndarray(outputs["embeddings"]).tolist() == [[3.0, 4.0, 5.0, 6.0], [-1.0] * 4]
    assert list(outputs["found"].bool_val) == [True, False]


def ask_examples(stub):
    """Calls the verbs that take examples. The signatures have predict's method name."""
    example = tf.train.Example()
    example.features.feature["age"].float_list.value.append(25)
    classify = classification_pb2.ClassificationRequest()
    regress = regression_pb2.RegressionRequest()
    both = inference_pb2.MultiInferenceRequest()
    for request, name in ((classify, "old_or_young"), (regress, "half_the_age")):
        request.model_spec.name, request.model_spec.signature_name = "ranker", name
        request.input.example_list.examples.append(example)
        task = both.tasks.add(model_spec=request.model_spec)
        task.method_name = f"tensorflow/serving/{'classify' if request is classify else 'regress'}"
    both.input.CopyFrom(classify.input)
    classes = stub.Classify(classify, timeout=60).result.classifications[0].classes
    assert [(each.label, each.score) for each in classes] == [("young", 0.75), ("old", 0.25)]
    assert stub.Regress(regress, timeout=60).result.regressions[0].value == 12.5
    results = stub.MultiInference(both, timeout=60).results
    assert list(results[0].classification_result.classifications[0].classes) == list(classes)
    assert results[1].regression_result.regressions[0].value == 12.5


def ask_what_is_served(predictions, models):
    """Requests the model's state and signatures, and the state of a model that does not exist."""
    request = get_model_status_pb2.GetModelStatusRequest(model_spec=RANKER)
    (status,) = models.GetModelStatus(request, timeout=60).model_version_status
    assert (status.version, status.state) == (3, status.AVAILABLE)
    request = get_model_metadata_pb2.GetModelMetadataRequest(model_spec=RANKER)
    request.metadata_field.append("signature_def")
    signatures = get_model_metadata_pb2.SignatureDefMap()
    told = predictions.GetModelMetadata(request, timeout=60).metadata["signature_def"]
    assert told.Unpack(signatures)
    method = signatures.signature_def["old_or_young"].method_name
    assert method == "tensorflow/serving/predict"
    request.model_spec.name = "no"
    refused = predictions.GetModelMetadata.future(request, timeout=60)
    assert refused.code() is grpc.StatusCode.NOT_FOUND


if __name__ == "__main__":
    with grpc.insecure_channel(f"127.0.0.1:{sys.argv[1]}") as channel:
        predictions = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        ask_predict(predictions)
        ask_lookup(predictions)
        ask_examples(predictions)
        ask_what_is_served(predictions, model_service_pb2_grpc.ModelServiceStub(channel))
    print("asked")
