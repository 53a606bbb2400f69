package badinput

import (
	"testing"

	"google.golang.org/grpc/codes"
)

// startCases come to light when the machine is to start.
func startCases() []badCase {
	return []badCase{
		{
			name: "CPU model that QEMU does not know", at: atStart, pod: vmi(`"cpu":{"model":"i8080"}`, ""),
			code: codes.InvalidArgument,
		},
		{
			name: "CPU feature that QEMU does not know", at: atStart,
			pod: vmi(`"cpu":{"features":[{"name":"magic"}]}`, ""), code: codes.InvalidArgument,
		},
		{
			name: "machine that QEMU does not know", at: atStart,
			pod: vmi(`"machine":{"type":"pc-q35-99.9"}`, ""), code: codes.InvalidArgument,
		},
	}
}

func (s *suite) testNode(t *testing.T) {}
