#!/bin/sh
# How full the file systems are, as a Toolbus tool. Manifest and how to run it: disk.yaml.
# It takes no arguments, so it need not read them. Exit code 69 says that the tool is unavailable for now.

report=$(df -kP) || {
	echo "df cannot read all file systems" >&2
	exit 69
}

# df -P: device, KiB, used, free, percent, mount point, which is the rest of the line.
printf '%s\n' "$report" | awk '
function text(s) {
	gsub(/\\/, "\\\\", s)
	gsub(/"/, "\\\"", s)
	return "\"" s "\""
}
BEGIN { printf "[" }
NR > 1 && $2 ~ /^[0-9]+$/ {
	device = $1; size = $2; used = $3; free = $4
	mounted = $0
	sub(/^.*[0-9-]%?[ \t]+\//, "/", mounted)
	printf "%s{\"device\":%s,\"mounted\":%s,\"size_kib\":%d,\"used_kib\":%d,\"free_kib\":%d}", comma, text(device), text(mounted), size, used, free
	comma = ","
}
END { print "]" }'
