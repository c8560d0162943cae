# Mends links in installed documents: a link to a header leads to the installed one, and a link to a file that is not installed becomes
# plain text that names the file. Included while installing.
#
# folder: where the documents are; headers: the folder that consumers search.

file(GLOB_RECURSE documents "${folder}/*.md")
foreach(document IN LISTS documents)
  get_filename_component(from "${document}" DIRECTORY)
  file(READ "${document}" text)
  set(mended "${text}")
  string(REGEX MATCHALL "\\((\\.\\./)+[^) ]+\\)" links "${text}") # without their brackets, which lists do not bear
  list(REMOVE_DUPLICATES links)
  foreach(link IN LISTS links)
    string(REGEX REPLACE "^\\(([^#]*).*\\)$" "\\1" path "${link}")
    get_filename_component(target "${from}/${path}" ABSOLUTE)
    if(EXISTS "${target}")
      continue()
    endif()
    file(RELATIVE_PATH path "${folder}" "${target}")
    if(EXISTS "${headers}/${path}" AND path MATCHES "\\.(hpp|cuh)$")
      file(RELATIVE_PATH path "${from}" "${headers}/${path}")
      string(REPLACE "${link}" "(${path})" mended "${mended}")
    else()
      string(REGEX REPLACE "([][().+*?^$|\\])" "\\\\\\1" pattern "${link}")
      string(REGEX REPLACE "\\[([^]]*)\\]${pattern}" "\\1, `${path}` in the sources" mended "${mended}")
    endif()
  endforeach()
  if(NOT mended STREQUAL text)
    file(WRITE "${document}" "${mended}")
  endif()
endforeach()
