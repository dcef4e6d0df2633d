"""How much of a table the monitor reads for its sample."""

import tensorflow as tf

import de_core as de
from de_core.tables.table import Table


def test_a_sample_that_the_first_shard_fills_reads_no_other_shard(monkeypatch):
    table = de.Variable(dim=2, name="users", devices=["/CPU:0", "/CPU:0"])
    table.upsert(range(100), tf.ones([100, 2]))
    monitor = de.metrics.Monitor(table, sample=int(table.size(0)))
    read, export_batches = [], Table.export_batches

    def counted(shard):
        for batch in export_batches(shard):
            read.append(len(batch[0]))
            yield batch

    monkeypatch.setattr(Table, "export_batches", counted)
    monitor.read()
    assert sum(read) == len(monitor.row_norms["users"]) == int(table.size(0)) < 100
