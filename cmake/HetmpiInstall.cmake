# What `cmake --install` gives: the library, its header, manual pages where Python is, the drop-in for unchanged programs, hetmpi_info, hetmpi_doctor, and how others find them (pkg-config and CMake).
# Both know which MPI the library was built with: a program must use the same.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/hetmpi)
install(TARGETS hetmpi hetmpi_pmpi EXPORT hetmpi)
install(TARGETS hetmpi_info hetmpi_doctor)
install(FILES include/hetmpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT hetmpi NAMESPACE hetmpi:: FILE hetmpiTargets.cmake DESTINATION ${package_dir})

configure_package_config_file(cmake/hetmpiConfig.cmake.in hetmpiConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(hetmpiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hetmpiConfig.cmake ${PROJECT_BINARY_DIR}/hetmpiConfigVersion.cmake
        DESTINATION ${package_dir})

# Paths in hetmpi.pc are relative to it where they can be, so that the tree may be moved.
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR} OR IS_ABSOLUTE ${CMAKE_INSTALL_INCLUDEDIR})
    set(pc_prefix ${CMAKE_INSTALL_PREFIX})
    set(pc_libdir ${CMAKE_INSTALL_FULL_LIBDIR})
    set(pc_includedir ${CMAKE_INSTALL_FULL_INCLUDEDIR})
else()
    file(RELATIVE_PATH up /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
    string(REGEX REPLACE "/$" "" pc_prefix "\${pcfiledir}/${up}")
    set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
    set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
list(TRANSFORM MPI_C_INCLUDE_DIRS PREPEND -I OUTPUT_VARIABLE pc_mpi_cflags)
list(JOIN pc_mpi_cflags " " pc_mpi_cflags)
list(JOIN MPI_C_LIBRARIES " " pc_mpi_libs)
configure_file(cmake/hetmpi.pc.in hetmpi.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/hetmpi.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
