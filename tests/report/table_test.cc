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

TEST(Table, PrintsRowsOneByOneBelowTheSameHeader) {
  const Table table({{"n", ""}, {"p50", "(ms)", 8}});
  EXPECT_EQ(table.HeaderText(),
            "#  n       p50\n"
            "#         (ms)\n");
  EXPECT_EQ(table.RowText({"1", "1.25"}), "   1      1.25\n");
  EXPECT_EQ(table.RowText({"100", "1.25"}), "   100      1.25\n");
}

TEST(FormatUs, HasTenthsWhereTheyCount) {
  EXPECT_EQ(FormatUs(387.24), "387.2");
  EXPECT_EQ(FormatUs(1763.4), "1763");
}

TEST(FormatMs, GivesUpDigitsBeforeWidth) {
  EXPECT_EQ(FormatMs(0.1234), "0.123");
  EXPECT_EQ(FormatMs(10), "10.00");
  EXPECT_EQ(FormatMs(99.99), "99.99");
  EXPECT_EQ(FormatMs(100), "100.0");
  EXPECT_EQ(FormatMs(12345.6), "12346");
}

}  // namespace
}  // namespace tp2
