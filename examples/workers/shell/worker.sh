#!/usr/bin/env bash
# A worker in nothing but bash: the NATS text protocol over /dev/tcp, docs/protocol.md at level plain. Two tools, one call
# at a time. It knows no TLS, no passwords and no cluster: README.md says when to use something else.
set -u
export LC_ALL=C # lengths are bytes
url=${TOOLBUS_NATS_URL:-nats://127.0.0.1:4222} root=${TOOLBUS_PREFIX:-tb}.v1
hostport=${url#*://} hostport=${hostport%%/*}
host=${hostport%:*} port=${hostport##*:}
[[ $hostport == *@* || $port == *[!0-9]* ]] && { echo "worker.sh: TOOLBUS_NATS_URL: expected nats://HOST:PORT, got $url" >&2; exit 2; }

# Each tool has its arguments, JSON, in $1 and puts its result, JSON, into $result.
conf_echo() { result=$1; }

# The length of {"data": "..."}: an escape is one byte, \uXXXX as many as its character has in UTF-8, half a surrogate pair two.
conf_size() {
	local text=$1 n hex head re='^[[:space:]]*\{[[:space:]]*"data"[[:space:]]*:[[:space:]]*"' unescaped='^[^\]*'
	[[ ${text:0:200} =~ $re ]] || { result='{"bytes":0}'; return; }
	text=${text:${#BASH_REMATCH}} text=${text%\"*}
	for ((n = 0; ; n++)); do
		[[ $text =~ $unescaped ]] && head=$BASH_REMATCH # ${text%%\\*} takes seconds where there is much of it
		n=$((n + ${#head}))
		[[ $head == "$text" ]] && break
		text=${text:${#head}}
		[[ $text == \\u[0-9a-fA-F][0-9a-fA-F][0-9a-fA-F][0-9a-fA-F]* ]] || { text=${text:2}; continue; }
		hex=$((16#${text:2:4})) text=${text:6}
		((hex >= 0xd800 && hex < 0xe000)) && n=$((n + 1)) || n=$((n + (hex > 0x7f) + (hex > 0x7ff)))
	done
	result="{\"bytes\":$n}"
}

serve() {
	local line word subject reply size payload result tool
	exec 3<>"/dev/tcp/$host/$port" || return
	printf 'CONNECT {"verbose":false,"name":"worker.sh","headers":false}\r\nPING\r\n' >&3
	for tool in conf_echo conf_size; do printf 'SUB %s.call.%s workers %s\r\n' "$root" "$tool" "$tool" >&3; done
	while IFS= read -r line <&3; do
		read -r word subject tool reply size <<<"${line%$'\r'}"
		case $word in
		PING) printf 'PONG\r\n' >&3 ;;
		-ERR) echo "worker.sh: the server says $line" >&2 ;;
		MSG)
			[[ -n $size ]] || size=$reply reply= # nobody waits for an answer
			IFS= read -rN "$size" payload <&3 && IFS= read -r line <&3 || return
			case $reply in # the caller chooses it, and it must be one that is made for answers
			_INBOX.* | _INBOX_*.* | _R_.* | "$root.reply.$tool".*) ;;
			*) continue ;;
			esac
			"$tool" "$payload"
			printf 'PUB %s %s\r\n%s\r\n' "$reply" "${#result}" "$result" >&3
			;;
		esac
	done
}

trap 'exit 0' TERM INT # a call that runs is finished first: bash waits for it
while :; do # the server may go away and come back
	serve
	sleep 1 & wait $!
done
