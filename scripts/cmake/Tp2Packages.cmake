# Every third-party package, in one place; scripts/setup.sh installs the matching Debian packages.
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(CLI11 REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(spdlog REQUIRED)
find_package(prometheus-cpp REQUIRED COMPONENTS core)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(PkgConfig REQUIRED)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
# RDMA is a choice. Bundles go to machines that may not have its shared objects, and it has no useful archives.
set(TP2_HAVE_VERBS OFF)
pkg_check_modules(rdma IMPORTED_TARGET libibverbs librdmacm)
if(rdma_FOUND AND NOT TP2_STATIC_DEPS)
  set(TP2_HAVE_VERBS ON)
endif()
message(STATUS "RDMA transport: ${TP2_HAVE_VERBS}")

# Debian's pkg-config files for Highway carry no include of their own to hide behind: /usr/include is enough.
if(TP2_STATIC_DEPS)
  include(Tp2StaticDeps)
endif()
