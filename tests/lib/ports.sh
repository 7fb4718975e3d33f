# Ports for tests that run beside each other (sourced by scripts).
ports_dir=/tmp/escrow-ports-$UID

# free_port [FROM TO]: sets $port to a TCP port that nobody has, and that no other test is given until this shell and
# what it has started have ended. None that the kernel gives to who asks for any: those come and go.
free_port() {
	local from=${1:-10000} to=${2:-} low held hex tries
	read -r low _ </proc/sys/net/ipv4/ip_local_port_range
	[ "$low" -gt 12000 ] || low=32768
	to=${to:-$((low - 1))}
	mkdir -p "$ports_dir"
	for ((tries = 0; tries < 1000; tries++)); do
		port=$((from + (RANDOM << 15 | RANDOM) % (to - from + 1)))
		printf -v hex ':%04X ' "$port"
		exec {held}>"$ports_dir/$port"
		flock -n "$held" && ! grep -qs "^ *[0-9]*: [0-9A-F]*$hex" /proc/net/tcp /proc/net/tcp6 && return
		exec {held}>&-
	done
	echo "no port is free" >&2
	return 1
}
