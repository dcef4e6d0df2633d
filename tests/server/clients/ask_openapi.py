"""A client that openapi-python-client generated asks a gateway that serves the model `ranker`.

`python ask_openapi.py HTTP_PORT FOLDER`; the folder holds the package `generated`.
"""

import io
import sys

import numpy as np


def ask(port):
    """Asks by the generated functions."""
    from generated import Client, models
    from generated.api.default import infer, lookup, model_status, predict, readyz, v2_index
    from generated.types import File

    client = Client(f"http://127.0.0.1:{port}", raise_on_unexpected_status=True)
    assert readyz.sync_detailed(client=client).status_code == 200
    status = model_status.sync("ranker", client=client)
    assert [entry.version for entry in status.model_version_status] == ["1"]
    rows = models.PredictBody(signature_name="half_plus_two", instances=[[1.0], [2.5]])
    assert predict.sync("ranker", client=client, body=rows).predictions == [[2.5], [3.25]]
    wrong = models.PredictBody(signature_name="no", instances=[1])
    assert "not found in signature def" in predict.sync("ranker", client=client, body=wrong).error
    asked = models.LookupBody(
        ids=[[7, "0"], [1]],
        table="user",
        combiner=models.LookupBodyCombiner.SUM,
        missing=models.LookupBodyMissing.NULL,
    )
    answer = lookup.sync("ranker", client=client, body=asked)
    assert answer.embeddings == [[4.0, 6.0, 8.0, 10.0], None]
    assert answer.found == [[True, True], [False]]
    binary = File(payload=io.BytesIO(np.array([7], "<i8").tobytes()))
    assert lookup.sync("ranker", client=client, body=binary, table="user").found == [True]
    tensor = models.InputTensor(
        name="x", datatype=models.InputTensorDatatype.FP32, shape=[1, 1], data=[1.0]
    )
    named = models.RequestParameters(signature_name="half_plus_two")
    inferred = infer.sync(
        "ranker", client=client, body=models.InferBody([tensor], parameters=named)
    )
    assert inferred.outputs[0].data == [2.5]
    listed = v2_index.sync(client=client, body=models.IndexBody(ready=True))
    assert [(entry.name, entry.version) for entry in listed] == [("ranker", "1")]


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[2])
    ask(sys.argv[1])
    print("asked")
