// The live tables of this process, whichever session, function or master made them: a server that
// others train on can tell what it holds.
#ifndef DE_CORE_KERNELS_LIVE_TABLES_H_
#define DE_CORE_KERNELS_LIVE_TABLES_H_

#include <string>

#include "de_core/cc/kernels/table_resource.h"

namespace de::kernels {

/// Adds a table, which is left out again once it is freed.
void NoteLiveTable(const std::string& name, TableResource* table);

/// JSON: for each table an object of `table`, its name, and `stats`, what DeTableStats says of it.
std::string LiveTablesJson();

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_LIVE_TABLES_H_
