package vmfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmstate"
)

// variablesName is the name of the file with UEFI variables in the container's folder.
const variablesName = "uefi-variables"

// maxVariables bounds that file, in bytes.
const maxVariables = 64 * mebibyte

// persistent reports whether a VM has persistent UEFI variables.
func persistent(r record.Container) bool {
	return r.Firmware != nil && r.Spec.State != nil && r.Spec.State.Variables
}

// Persistent opens the persistent UEFI variables of a container, whatever the firmware starts with; nil for
// a VM without any. No other VM has them until all processes have closed the file.
func (f *Files) Persistent(r record.Container) (*os.File, error) {
	if !persistent(r) {
		return nil, nil
	}
	return vmstate.Variables(r.Spec.State.Folder, r.Firmware.Variables)
}

// Variables opens the persistent UEFI variables of a container, from which [Files.Create] has made
// the file that the firmware starts with; nil for a VM without any. No other VM has them until all
// processes have closed the file.
func (f *Files) Variables(r record.Container) (_ *os.File, err error) {
	kept, err := f.Persistent(r)
	if err != nil || kept == nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, kept.Close())
		}
	}()
	text, err := io.ReadAll(io.NewSectionReader(kept, 0, maxVariables))
	if err != nil {
		return nil, fmt.Errorf("read the persistent UEFI variables: %w", err)
	}
	copied, err := os.ReadFile(f.path(r.ID, file{name: variablesName}))
	if err != nil {
		return nil, fmt.Errorf("read the UEFI variables: %w", err)
	}
	if !bytes.Equal(text, copied) {
		return nil, fmt.Errorf("%w: the persistent UEFI variables have changed since the container was created; create it again", ErrInvalid)
	}
	return kept, nil
}
