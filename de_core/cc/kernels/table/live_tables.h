// Registers the live tables of this process, whichever session, function or master created them. So
// a parameter server can report its tables.
#ifndef DE_CORE_KERNELS_LIVE_TABLES_H_
#define DE_CORE_KERNELS_LIVE_TABLES_H_

#include <string>

#include "de_core/cc/kernels/table/table_resource.h"

namespace de::kernels {

/// Registers a table. It is removed automatically when it is freed.
void NoteLiveTable(const std::string& name, TableResource* table);

/// Returns JSON: for each table, an object with `table`, its name, and `stats`, its DeTableStats.
std::string LiveTablesJson();

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_LIVE_TABLES_H_
