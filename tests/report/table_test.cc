// The look of tables.
#include "libcore/report/table.h"

#include <gtest/gtest.h>

namespace tp2 {
namespace {

TEST(Table, AlignsColumnsAndMarksWhatIsNotData) {
  Table table({{"path", ""}, {"p50", "(ms)"}});
  table.AddRow({"tcp", "1.25"});
  table.AddRow({"in-process", "110.5"});
  EXPECT_EQ(table.Render(),
            "#        path    p50\n"
            "#               (ms)\n"
            "          tcp   1.25\n"
            "   in-process  110.5\n");
}

TEST(FormatMs, GivesUpDigitsBeforeWidth) {
  EXPECT_EQ(FormatMs(0.123), "0.12");
  EXPECT_EQ(FormatMs(99.99), "99.99");
  EXPECT_EQ(FormatMs(100), "100.0");
  EXPECT_EQ(FormatMs(12345.6), "12346");
}

}  // namespace
}  // namespace tp2
