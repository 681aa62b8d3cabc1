#include "primitives/rnn/rnn_pass.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "primitives/nest/contraction_builder.h"
#include "primitives/nest/schedule_cost.h"
#include "primitives/nest/scheduled_pass.h"
#include "primitives/rnn/rnn_panels.h"

namespace dlprim {
namespace {

// Rows of the products with src at once, so that what they leave is still in a cache when its step
// comes.
constexpr std::int64_t kRowsTogether = 256;
// And of these, of src for each panel of weights, at most.
constexpr std::int64_t kRowsOfBlock = 112;
// Sequences of a tile, about; and where the weights of a panel, which every tile reads, do not stay
// in the L2 cache.
constexpr std::int64_t kTileRows = 64;
constexpr std::int64_t kLargeTileRows = 192;
// Channels of a sum that one call of a kernel takes: for 64 others 256 KiB of float32 weights.
constexpr std::int64_t kSummedChannels = 1024;
// Rows that one call of a gradient of the weights sums: A and B of a call stay in the L2 cache.
constexpr std::int64_t kSummedRows = 512;
// Where registers are few, in the L1 cache: small tiles read them again and again.
constexpr std::int64_t kSummedRowsOfFewRegisters = 192;
// Channels of the state whose gradients follow each other for a block of columns.
constexpr std::int64_t kStateChannels = 512;
// Weights that stay in the L3 cache beside everything else, so that all of them may follow each
// block of rows.
constexpr double kResidentWeights = 6e6;
// Gradients of one gate's weights that stay in the L2 cache while all rows are added to them.
constexpr double kResidentSums = 300e3;

// All channels of panels as what is summed: their padding is zero.
Panels whole(const Panels& panels, std::int64_t times = 1) {
    return {times * panels.padded(), panels.width};
}

// [panel of `out`][gate][channel that is summed][width], neighbours along the sum side by side; of
// the gates that are stored so many.
Layout weights(DType dtype, const Panels& out, std::int64_t gates, const Panels& in,
               std::int64_t stored_gates) {
    const std::int64_t word = elements_per_word(dtype);
    return stored_layout(dtype, {{'k', out.channels}, {'c', in.channels}, {'g', gates}},
                         {{'k', out.count()},
                          {'g', stored_gates},
                          {'c', in.count()},
                          {'c', in.width / word},
                          {'k', out.width},
                          {'c', word}});
}

// sums(n,k,g) of `rows` rows: contiguous wherever a block begins, and of the padding of the last
// panel no more than a part of a vector is written.
Layout gate_sums(const RnnShape& shape, std::int64_t rows, std::int64_t gates) {
    const Panels state = shape.state();
    return stored_layout(
        DType::f32, {{'n', rows}, {'k', shape.vectors().channels}, {'g', gates}},
        {{'k', state.count()}, {'g', shape.sums()}, {'n', sum_rows(shape)}, {'k', state.width}});
}

Contraction projection(const RnnShape& shape, std::int64_t rows) {
    const Panels src = whole(shape.src());
    Contraction made = contraction_from(
        parse_product("sums(n,k,g) +=! src(n,c) * w_ih(k,c,g)"),
        {.c = gate_sums(shape, rows, shape.gates()),
         .a = panel_layout(src, shape.dtype, {'n', rows}, shape.rows()),
         .b = weights(shape.dtype, shape.vectors(), shape.gates(), src, shape.gates())},
        {.loops = "nkgc", .rows = "n", .columns = "k", .depth = "c", .bias = "gk"});
    made.epilogue = {.bias = true};
    return made;
}

// Weights of a step come from the L3 cache, and where registers are few tiles go through them in
// pieces of lines, which hardware fetches late. One sequence leaves no time to fetch in.
void fetch_weights(const RnnShape& shape, Contraction& product) {
    const bool few = shape.dtype == DType::f32 && this_machine().few_registers();
    if (few && shape.N > 1) fetch_far_weights(product);
}

Contraction recurrence(const RnnShape& shape, std::int64_t gates) {
    const Panels state = whole(shape.state());
    Contraction made =
        contraction_from(parse_product("sums(n,k,g) += hidden(n,c) * w_hh(k,c,g)"),
                         {.c = gate_sums(shape, shape.N, gates),
                          .a = panel_layout(state, shape.dtype, {'n', shape.N}, shape.N),
                          .b = weights(shape.dtype, shape.vectors(), gates, state, shape.gates())},
                         {.loops = "nkgc", .rows = "n", .columns = "k", .depth = "c"});
    fetch_weights(shape, made);
    return made;
}

// Slots and panels are one long sum.
Contraction diff_recurrence(const RnnShape& shape) {
    const Panels state = whole(shape.state_lines()), deltas = whole(state, shape.gates());
    Contraction made =
        contraction_from(parse_product("tile(n,k) +=! deltas(n,s) * w_hh(k,s,0)"),
                         {.c = panel_layout(state, DType::f32, {'n', shape.N}, shape.N, 'k'),
                          .a = panel_layout(deltas, shape.dtype, {'n', shape.N}, shape.rows(), 's'),
                          .b = weights(shape.dtype, state, 1, deltas, 1)},
                         {.loops = "nks", .rows = "n", .columns = "k", .depth = "s"});
    fetch_weights(shape, made);
    made.loops[0].c = made.loops[1].c = 0;  // one tile, that of the block at hand
    return made;
}

Contraction diff_src(const RnnShape& shape) {
    const Panels deltas = whole(shape.state_lines(), shape.gates());
    const std::int64_t rows = shape.rows();
    return contraction_from(parse_product("diff_src(n,c) +=! deltas(n,s) * w_ih(c,s,0)"),
                            {.c = plain_layout(shape.dtype, {{'n', rows}, {'c', shape.C}}),
                             .a = panel_layout(deltas, shape.dtype, {'n', rows}, rows, 's'),
                             .b = weights(shape.dtype, shape.src_lines(), 1, deltas, 1)},
                            {.loops = "ncs", .rows = "n", .columns = "c", .depth = "s"});
}

std::int64_t most_summed_rows(DType dtype) {
    const bool few = dtype == DType::f32 && this_machine().few_registers();
    return few ? kSummedRowsOfFewRegisters : kSummedRows;
}

// Of one gate; `input` is what the weights are multiplied with, in panels of `input_rows` rows.
Contraction diff_weights(const RnnShape& shape, const Panels& input, std::int64_t input_rows) {
    const std::int64_t rows = summed_rows(shape), word = elements_per_word(shape.dtype);
    return contraction_from(
        parse_product("diff_weights(k,c) +=! deltas(r,k) * input(r,c)"),
        {.c = plain_layout(DType::f32, {{'k', shape.K}, {'c', input.channels}}),
         .a = panel_layout(shape.state_lines(), shape.dtype, {'r', rows}, rows, 'k', word),
         .b = panel_layout(input, shape.dtype, {'r', rows}, input_rows, 'c', word)},
        {.loops = "kcr",
         .rows = "k",
         .columns = "c",
         .depth = "r",
         .depth_unit = std::clamp<std::int64_t>(rows, 1, most_summed_rows(shape.dtype)),
         .transposed_a = true});
}

Contraction contraction(const RnnShape& shape, RnnPass pass, std::int64_t variant) {
    switch (pass) {
        case RnnPass::projection: return projection(shape, variant);
        case RnnPass::recurrence: return recurrence(shape, variant);
        case RnnPass::diff_recurrence: return diff_recurrence(shape);
        case RnnPass::diff_src: return diff_src(shape);
        case RnnPass::diff_w_ih: return diff_weights(shape, shape.src_lines(), summed_rows(shape));
        default: {
            const std::int64_t before = shape.dtype == DType::f32 ? shape.N : 0;
            return diff_weights(shape, shape.state_lines(), summed_rows(shape) + before);
        }
    }
}

bool is_recurrent(RnnPass pass) {
    return pass == RnnPass::recurrence || pass == RnnPass::diff_recurrence;
}

// Rows of blocks as equal as can be, so that threads get equal shares.
std::int64_t equal_blocks(std::int64_t rows, std::int64_t at_most) {
    const std::int64_t extent = std::max<std::int64_t>(rows, 1);
    return Blocks{extent, Blocks{extent, at_most}.count()}.count();
}

// By what the operands leave in the caches. Empty where the model of schedule_cost.h chooses as
// well.
std::string measured_schedule(const RnnShape& shape, RnnPass pass, const Contraction& product) {
    const bool small_weights = product.bytes_b <= kResidentWeights;
    const Panels lines = shape.state_lines();
    const std::int64_t panels = shape.gates() * lines.count();
    const std::int64_t together = kSummedChannels / lines.width;
    const auto block = [](std::int64_t rows) {
        return "N" + std::to_string(equal_blocks(rows, kRowsOfBlock));
    };
    switch (pass) {
        case RnnPass::projection:
            return (small_weights ? block(sum_rows(shape)) + " G K"
                                  : "G K " + block(sum_rows(shape))) +
                   " c" + std::to_string(shape.src().count());
        // Panels outside, so that the weights of one serve all rows.
        case RnnPass::recurrence: {
            const double panel = product.bytes_b / static_cast<double>(shape.state().count());
            const std::int64_t rows = panel > this_machine().l2 ? kLargeTileRows : kTileRows;
            return "K N" + std::to_string(equal_blocks(shape.N, rows)) + " g c" +
                   std::to_string(shape.state().count());
        }
        case RnnPass::diff_recurrence:
            return "K N" + std::to_string(equal_blocks(shape.N, kTileRows)) + " s" +
                   std::to_string(equal_blocks(panels, together));
        case RnnPass::diff_src:
            if (small_weights) return block(shape.rows()) + " C s" + std::to_string(panels);
            return shape.dtype == DType::f32 ? "N224 s" + std::to_string(together) + " C" : "";
        default:
            if (product.bytes_c <= kResidentSums) return "r K C";
            return shape.dtype == DType::f32
                       ? "K" + std::to_string(kStateChannels / lines.width) + " C r K"
                       : "";
    }
}

std::vector<Schedule> candidates(const RnnShape& shape, RnnPass pass, const Contraction& product,
                                 int count) {
    const std::string measured = measured_schedule(shape, pass, product);
    if (is_recurrent(pass)) return {parse_schedule(measured)};
    std::vector<Schedule> found = ranked_schedules(product, this_machine(), count);
    if (measured.empty()) return found;
    const Schedule schedule = parse_schedule(measured);
    std::erase(found, schedule);
    found.insert(found.begin(), schedule);
    found.resize(std::min<std::size_t>(found.size(), static_cast<std::size_t>(count)));
    return found;
}

// The gates of a tile are applied when the loops behind rows and channels are through, on the
// thread that ran them. What a block of rows sums into is found by its number, its first row / the
// innermost step: no two blocks may have one number.
void require_tiles(RnnPass pass, const Schedule& schedule) {
    const auto refuse = [&](const std::string& why) {
        throw std::invalid_argument("schedule '" + to_string(schedule) + "' of " +
                                    std::string(name_of(pass)) + why);
    };
    bool inside = false;
    std::int64_t outer_step = 0;
    for (const Level& level : schedule.levels) {
        const bool outer = level.letter == 'n' || level.letter == 'k';
        if ((outer && inside) || (!outer && level.parallel)) {
            refuse(": expected n and k outside of all other loops, which have small letters");
        }
        inside = inside || !outer;
        if (level.letter != 'n') continue;
        if (level.step > 0 && outer_step % level.step != 0) {
            refuse(" has the step " + std::to_string(level.step) + " inside the step " +
                   std::to_string(outer_step) +
                   " of the loop 'n', expected a step that divides it");
        }
        outer_step = level.step;
    }
}

}  // namespace

std::int64_t steps_together(const RnnShape& shape) {
    return std::clamp<std::int64_t>(kRowsTogether / std::max<std::int64_t>(shape.N, 1), 1,
                                    std::max<std::int64_t>(shape.T, 1));
}

std::int64_t sum_rows(const RnnShape& shape) { return steps_together(shape) * shape.N; }

std::int64_t summed_rows(const RnnShape& shape) {
    const std::int64_t group = elements_per_word(shape.dtype);
    return Blocks{shape.rows(), group}.count() * group;
}

ContractionRules rnn_rules(const RnnShape& shape, RnnPass pass) {
    ContractionRules rules{
        .contraction = [=](std::int64_t variant) { return contraction(shape, pass, variant); },
        .typical = pass == RnnPass::recurrence ? shape.first_gates() : shape.rows(),
        .candidates = [=](const Contraction& product,
                          int count) { return candidates(shape, pass, product, count); }};
    if (is_recurrent(pass)) {
        rules.check = [=](const Schedule& schedule) { require_tiles(pass, schedule); };
    }
    return rules;
}

std::int64_t tile_rows(const ContractionPlan& recurrent) {
    const LoopNest& nest = recurrent.nest();
    return std::min(last_step(nest.schedule(), 'n'), nest.loops()[kRowsLoop].extent);
}

}  // namespace dlprim
