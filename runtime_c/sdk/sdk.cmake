# The C SDK: header, shared and static library, files for pkg-config and for find_package(svm).
# `cmake --install` puts it below the prefix; a Python package has it in shapevm/sdk.
file(STRINGS include/svm.h version REGEX "#define SVM_API_(MAJOR|MINOR)")
string(REGEX MATCHALL "[0-9]+" version "${version}")
list(GET version 0 SVM_API_MAJOR)
list(JOIN version "." SVM_API_VERSION)

if(SKBUILD)
  set(sdk shapevm/sdk/)
endif()

# --- shared ------------------------------------------------------------------
add_library(svm SHARED $<TARGET_OBJECTS:svm_objects>)
target_link_libraries(svm PRIVATE Threads::Threads m ${CMAKE_DL_LIBS})
set_target_properties(svm PROPERTIES SOVERSION ${SVM_API_MAJOR})
if(SKBUILD)
  # A wheel has no symbolic links: the linker's name of the library is a script.
  install(TARGETS svm LIBRARY DESTINATION ${sdk}lib NAMELINK_SKIP)
  file(CONFIGURE OUTPUT script/libsvm.so CONTENT "INPUT(libsvm.so.@SVM_API_MAJOR@)\n" @ONLY)
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/script/libsvm.so" DESTINATION ${sdk}lib)
else()
  install(TARGETS svm LIBRARY DESTINATION ${sdk}lib)
endif()

# --- static: one object, in which only what svm.h declares can be seen ----------
if(NOT CMAKE_OBJCOPY)
  message(FATAL_ERROR "libsvm.a needs objcopy (package binutils); set CMAKE_OBJCOPY to its path")
endif()
add_custom_command(
  OUTPUT libsvm.a
  COMMAND "${CMAKE_LINKER}" -r -o svm.o "$<TARGET_OBJECTS:svm_objects>"
  COMMAND "${CMAKE_OBJCOPY}" --localize-hidden svm.o
  COMMAND "${CMAKE_COMMAND}" -E rm -f libsvm.a
  COMMAND "${CMAKE_AR}" qcs libsvm.a svm.o
  DEPENDS svm_objects "$<TARGET_OBJECTS:svm_objects>"
  COMMAND_EXPAND_LISTS
  VERBATIM)
add_custom_target(svm_static ALL DEPENDS libsvm.a)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/libsvm.a" DESTINATION ${sdk}lib)

# --- how to find it ----------------------------------------------------------
include(CMakePackageConfigHelpers)
configure_file(sdk/svm.pc.in svm.pc @ONLY)
configure_file(sdk/svmConfig.cmake.in svmConfig.cmake @ONLY)
write_basic_package_version_file(svmConfigVersion.cmake VERSION ${SVM_API_VERSION} COMPATIBILITY SameMajorVersion)
install(FILES include/svm.h include/svm_codes.h include/svm_plugin.h DESTINATION ${sdk}include/shapevm)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/svm.pc" DESTINATION ${sdk}lib/pkgconfig)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/svmConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/svmConfigVersion.cmake"
        DESTINATION ${sdk}lib/cmake/svm)
