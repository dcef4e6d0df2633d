"""Your own storage: rows in an SQLite file. A second run continues where the first ended."""

import sqlite3

import de_core as de


class SqliteRows(de.RowStore):
    def __init__(self, path):
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._run("CREATE TABLE IF NOT EXISTS cells (col, key, data, PRIMARY KEY (col, key))")

    def _run(self, sql, *values):
        return self._db.execute(sql, values).fetchall()

    def read(self, columns, keys):
        sql = "SELECT max(data) FROM cells WHERE col = ? AND key = ?"  # NULL if the key has no cell
        return [[self._run(sql, column, key)[0][0] for key in keys] for column in columns]

    def write(self, keys, columns):
        for column, rows in columns.items():
            for key, row in zip(keys, rows, strict=True):
                self._run("REPLACE INTO cells VALUES (?, ?, ?)", column, key, row)

    def erase(self, keys):
        for key in keys:
            self._run("DELETE FROM cells WHERE key = ? AND col != ''", key)

    def drop(self, column):
        self._run("DELETE FROM cells WHERE col = ?", column)

    def columns(self):
        return [name for (name,) in self._run("SELECT DISTINCT col FROM cells WHERE col != ''")]

    def scan(self):
        if keys := [key for (key,) in self._run("SELECT key FROM cells WHERE col = 'value'")]:
            yield keys

    def size(self):
        return self._run("SELECT COUNT(*) FROM cells WHERE col = 'value'")[0][0]

    def clear(self):
        self._run("DELETE FROM cells WHERE col != ''")

    def describe(self, text):
        self._run("INSERT OR IGNORE INTO cells VALUES ('', '', ?)", text)
        return self._run("SELECT data FROM cells WHERE col = ''")[0][0]


class SqliteCreator(de.KVCreator):
    def create(self, *, name, **_):
        return SqliteRows(self.config["path"].format(name=name))


if __name__ == "__main__":
    visits = de.Variable(dim=2, name="visits", kv_creator=SqliteCreator({"path": "{name}.sqlite"}))
    visits.accum([7, 8], [[0.0, 0.0]] * 2, [[1.0, 0.5]] * 2)
    print(visits.lookup([7, 8]).numpy().tolist())
