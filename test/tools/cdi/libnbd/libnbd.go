// Package libnbd replaces the bindings of libnbd, by which CDI's importer reads VMware's disks. Go's module
// proxy does not serve them. It reports an error to every import of such a disk.
package libnbd

import "errors"

// The flags and states that the importer names.
const (
	CMD_FLAG_REQ_ONE CmdFlag = 8
	STATE_HOLE       uint32  = 1
	STATE_ZERO       uint32  = 2
)

var errMissing = errors.New("libnbd: this build of CDI cannot read disks of VMware")

// CmdFlag changes a command.
type CmdFlag uint32

// PreadOptargs are the options of Pread.
type PreadOptargs struct{}

// BlockStatusOptargs are the options of BlockStatus.
type BlockStatusOptargs struct {
	FlagsSet bool
	Flags    CmdFlag
}

// ExtentCallback receives extents.
type ExtentCallback func(metacontext string, offset uint64, entries []uint32, error *int) int

// LibnbdError is an error of the library.
type LibnbdError struct{ Op, Errmsg string }

func (e *LibnbdError) Error() string { return e.Errmsg }

func (e *LibnbdError) String() string { return e.Errmsg }

// Libnbd is a connection.
type Libnbd struct{}

// Create returns an error.
func Create() (*Libnbd, error) { return nil, errMissing }

// AddMetaContext returns an error.
func (*Libnbd) AddMetaContext(string) error { return errMissing }

// ConnectUri returns an error.
func (*Libnbd) ConnectUri(string) error { return errMissing }

// GetSize returns an error.
func (*Libnbd) GetSize() (uint64, error) { return 0, errMissing }

// Pread returns an error.
func (*Libnbd) Pread([]byte, uint64, *PreadOptargs) error { return errMissing }

// Close does nothing.
func (*Libnbd) Close() *LibnbdError { return nil }

// BlockStatus returns an error.
func (*Libnbd) BlockStatus(uint64, uint64, ExtentCallback, *BlockStatusOptargs) error {
	return errMissing
}
