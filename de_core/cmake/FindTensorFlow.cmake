# Finds the TensorFlow wheel of one Python environment, without importing it (an import takes seconds).
#
# Input:
#   TensorFlow_PYTHON   the interpreter whose environment is searched (default: Python_EXECUTABLE, else python3)
#   TensorFlow_DIST_DIR a site-packages folder to search first (passed by the wheel build)
# Output:
#   TensorFlow::framework  imported target: headers (SYSTEM, like every imported target) and library
#   TensorFlow_VERSION     for example 2.21.0
#   TensorFlow_DISTRIBUTION the name of the wheel: tensorflow, tensorflow-cpu, ...

if(NOT TensorFlow_PYTHON)
  if(Python_EXECUTABLE)
    set(TensorFlow_PYTHON "${Python_EXECUTABLE}")
  else()
    find_program(TensorFlow_PYTHON NAMES python3 python)
  endif()
endif()

execute_process(
  COMMAND "${TensorFlow_PYTHON}" "${CMAKE_CURRENT_LIST_DIR}/../_build/tf_pin.py" --locate "${TensorFlow_DIST_DIR}"
  OUTPUT_VARIABLE _tf_found
  ERROR_VARIABLE _tf_error
  OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE _tf_status)

if(NOT _tf_status EQUAL 0)
  message(FATAL_ERROR "The environment of ${TensorFlow_PYTHON} must hold TensorFlow: ${_tf_error}")
endif()

# One line: distribution;version;folder of the package.
list(GET _tf_found 0 TensorFlow_DISTRIBUTION)
list(GET _tf_found 1 TensorFlow_VERSION)
list(GET _tf_found 2 TensorFlow_ROOT_DIR)

set(TensorFlow_INCLUDE_DIR "${TensorFlow_ROOT_DIR}/include")
file(GLOB _tf_libraries "${TensorFlow_ROOT_DIR}/libtensorflow_framework.so.*"
     "${TensorFlow_ROOT_DIR}/libtensorflow_framework.*.dylib")
if(_tf_libraries)
  list(GET _tf_libraries 0 TensorFlow_FRAMEWORK_LIBRARY)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  TensorFlow
  REQUIRED_VARS TensorFlow_FRAMEWORK_LIBRARY TensorFlow_INCLUDE_DIR
  VERSION_VAR TensorFlow_VERSION)

if(TensorFlow_FOUND AND NOT TARGET TensorFlow::framework)
  add_library(TensorFlow::framework SHARED IMPORTED)
  set_target_properties(
    TensorFlow::framework
    PROPERTIES IMPORTED_LOCATION "${TensorFlow_FRAMEWORK_LIBRARY}"
               INTERFACE_INCLUDE_DIRECTORIES "${TensorFlow_INCLUDE_DIR}"
               # The result of tf.sysconfig.get_compile_flags() in the wheels of these versions.
               INTERFACE_COMPILE_DEFINITIONS "_GLIBCXX_USE_CXX11_ABI=1;EIGEN_MAX_ALIGN_BYTES=64")
endif()
