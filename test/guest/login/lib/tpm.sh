# Functions of the programs that speak to the TPM.

# ask sends a command, whose hexadecimal digits are the arguments, and prints the response's.
ask() {
	printf "$(echo "$*" | tr -d ' ' | sed 's/../\\x&/g')" >/run/tpm.command
	exec 3<>/dev/tpm0
	cat /run/tpm.command >&3
	dd bs=4096 count=1 <&3 2>/dev/null | hexdump -v -e '1/1 "%02x"'
}

# succeeded reports whether a response has no error.
succeeded() {
	[ "$(echo "$1" | cut -c13-20)" = 00000000 ] && return
	echo "the TPM refuses: $1" >&2
	return 1
}

# The owner of the TPM, and a session that needs no password.
owner=40000001
session="00000009 40000009 0000 00 0000"

# index prints the handle of an index of the TPM's own storage, by its number.
index() { printf '0100%04x' "$1"; }

# options takes tpm2-tools' options: -s SIZE, -i FILE, -c FILE and -C HIERARCHY, and the index.
options() {
	while getopts s:i:c:C: option; do
		case $option in
		s) size=$OPTARG ;;
		i) input=$OPTARG ;;
		C) [ "$OPTARG" = o ] || return 1 ;;
		esac
	done
	shift $((OPTIND - 1))
	number=$1
}
