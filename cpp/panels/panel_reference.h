// Plain loops for the same: what runs where there are no vectors, and the oracle of tests. They
// read records of any method, so that those of any ISA can be compared.
#pragma once

#include "panels/panel_kernel.h"

namespace dlprim {

void reference_panel(const PanelSpec& spec, const RowRecord& record, const PanelArgs& args);

void reference_records(const RecordSpec& spec, const RecordArgs& args);

// Number k of a record: what was rounded, without its scale.
float record_number(const RowRecord& record, const char* from, std::int64_t k);

}  // namespace dlprim
