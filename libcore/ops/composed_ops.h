// Operations that are several others in a row: an op set may fuse them, these are the oracle.
#pragma once

#include "libcore/ops/op_args.h"

namespace tp2 {

template <class O>
void EnterByParts(O& ops, int rank, float norm_eps, int dim,
                  const EnterArgs<typename O::Stored>& args) {
  if (args.partials != nullptr) {
    const AllReduceArgs<typename O::Stored> sum = {args.partials, args.half_stride, args.rows,
                                                   args.y};
    ops.AllReduce({&sum, 1});
  }
  if (args.y != nullptr) ops.Update(rank, {args.streams, args.y, args.update, args.rows});
  if (args.mix != nullptr) ops.Mix(rank, {args.streams, args.mix_weights, args.rows, args.mix});
  if (args.x == nullptr) return;
  float* collapsed = args.collapsed != nullptr ? args.collapsed : args.x;
  ops.Collapse(rank,
               {args.streams, args.pre, args.pre_stride, args.pick, args.picked_rows, collapsed});
  ops.RmsNorm(rank, {collapsed, args.norm, norm_eps, args.picked_rows, dim, args.x});
}

template <class O>
void LatentsByParts(O& ops, int rank, const LatentArgs<typename O::Stored>& args) {
  ops.RmsNorm(rank, args.query_norm);
  ops.Linear(rank, {&args.wq_b, 1});
  ops.RmsNorm(rank, args.kv_norm);
  ops.KvFinish(rank, args.kv_finish);
}

template <class O>
void AttendByParts(O& ops, int rank, const AttendArgs<typename O::Stored>& args) {
  ops.QueryFinish(rank, args.queries);
  ops.Attention(rank, args.attention);
}

}  // namespace tp2
