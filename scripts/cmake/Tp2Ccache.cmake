# ccache when it is installed; a build without it is the same, only slower the second time.
find_program(TP2_CCACHE ccache)
if(TP2_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TP2_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${TP2_CCACHE})
endif()
