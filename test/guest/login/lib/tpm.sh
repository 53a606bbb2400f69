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
