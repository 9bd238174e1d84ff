// Propagation of absl::Status and absl::StatusOr.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define TP2_RETURN_IF_ERROR(expression)        \
  do {                                         \
    absl::Status tp2_status_ = (expression);   \
    if (!tp2_status_.ok()) return tp2_status_; \
  } while (false)

#define TP2_CONCAT_INNER_(a, b) a##b
#define TP2_CONCAT_(a, b) TP2_CONCAT_INNER_(a, b)

// TP2_ASSIGN_OR_RETURN(auto value, FunctionReturningStatusOr());
#define TP2_ASSIGN_OR_RETURN(declaration, expression) \
  TP2_ASSIGN_OR_RETURN_IMPL_(TP2_CONCAT_(tp2_statusor_, __LINE__), declaration, expression)
#define TP2_ASSIGN_OR_RETURN_IMPL_(result, declaration, expression) \
  auto result = (expression);                                       \
  if (!result.ok()) return result.status();                         \
  declaration = std::move(result).value()
