# docs/settings.md is what hetmpi_info --markdown prints; the plain listing knows every setting, and errors end it.
execute_process(COMMAND ${TOOL} --markdown OUTPUT_VARIABLE printed RESULT_VARIABLE result)
if(NOT result EQUAL 0)
    message(FATAL_ERROR "hetmpi_info --markdown: ${result}")
endif()
file(READ ${DOC} documented)
if(NOT printed STREQUAL documented)
    message(FATAL_ERROR "docs/settings.md is not what the table says. Run: hetmpi_info --markdown > docs/settings.md")
endif()

execute_process(COMMAND ${CMAKE_COMMAND} -E env HETMPI_TIMEOUT=1500ms ${TOOL} OUTPUT_VARIABLE listed
                RESULT_VARIABLE result)
if(NOT result EQUAL 0 OR NOT listed MATCHES "HETMPI_TIMEOUT +1500ms +environment"
   OR NOT listed MATCHES "HETMPI_WIRE +auto +default")
    message(FATAL_ERROR "hetmpi_info (${result}):\n${listed}")
endif()
string(REGEX MATCHALL "\n\\| `[A-Z_]+`" rows "${documented}")
foreach(row IN LISTS rows)
    string(REGEX REPLACE "[^A-Z_]" "" name "${row}")
    if(NOT listed MATCHES "HETMPI_${name} ")
        message(FATAL_ERROR "hetmpi_info does not list ${name}")
    endif()
endforeach()

execute_process(COMMAND ${CMAKE_COMMAND} -E env HETMPI_WIRE=tcp ${TOOL} ERROR_VARIABLE complaint RESULT_VARIABLE result)
if(result EQUAL 0 OR NOT complaint MATCHES "HETMPI_WIRE")
    message(FATAL_ERROR "hetmpi_info took HETMPI_WIRE=tcp (${result}): ${complaint}")
endif()
