# Run at build time (a configure-time stamp goes stale); touches the header only when its content changes.
execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --dirty --abbrev=12
                OUTPUT_VARIABLE git_id OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT git_id)
  set(git_id "unknown")
endif()
set(text "#pragma once\n#define TP2_VERSION \"${VERSION}\"\n#define TP2_GIT_ID \"${git_id}\"\n#define TP2_COMPILER \"${COMPILER}\"\n")
set(old "")
if(EXISTS ${OUT})
  file(READ ${OUT} old)
endif()
if(NOT old STREQUAL text)
  file(WRITE ${OUT} "${text}")
endif()
