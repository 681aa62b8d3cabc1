# Steps of networks that the bindings alone make, as no header of theirs is installed: a library of
# its own, so that what users link to does not hold them. Paths are relative to the folder cpp.
set(step_sources
  graph/elements/conversions.cpp
  graph/elements/fold_step.cpp
  graph/elements/indexed_step.cpp
  graph/elements/map_functions.cpp
  graph/elements/map_step.cpp
  graph/elements/placed_rows_step.cpp
  graph/elements/scatter_step.cpp
  graph/elements/top_step.cpp
  graph/functions/element_functions.cpp
  graph/functions/farthest_places.cpp
  graph/functions/function_step.cpp
  graph/functions/image_samples.cpp
  graph/functions/layer_functions.cpp
  graph/functions/matrix_functions.cpp
  graph/functions/nonzero_places.cpp
  graph/functions/routed_rows.cpp
  graph/functions/suppression.cpp
  graph/functions/tree_sums.cpp
  graph/functions/weighted_rows.cpp)
