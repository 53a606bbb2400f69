package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
)

// WriteCD writes an ISO 9660 image at path that boots as a CD (El Torito, without
// emulation) what boot begins with, such as a BootSector, and holds it as /boot.img.
func WriteCD(path string, boot []byte) (err error) {
	folder, err := os.MkdirTemp("", "cd-")
	if err != nil {
		return fmt.Errorf("make a CD: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := os.WriteFile(filepath.Join(folder, "boot.img"), boot[:min(len(boot), 2048)], 0o644); err != nil {
		return fmt.Errorf("make a CD: %w", err)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make a CD: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	iso, err := iso9660.Create(file.New(f, false), 0, 0, 0, folder)
	if err == nil {
		entry := &iso9660.ElToritoEntry{Platform: iso9660.BIOS, Emulation: iso9660.NoEmulation, BootFile: "/boot.img"}
		entry.SetLoadSize(4) // sectors of 512 bytes
		err = iso.Finalize(iso9660.FinalizeOptions{
			RockRidge: true, VolumeIdentifier: fmt.Sprintf("%-32s", "NODEVIRT"),
			ElTorito: &iso9660.ElTorito{BootCatalog: "/boot.cat", Entries: []*iso9660.ElToritoEntry{entry}},
		})
	}
	if err != nil {
		return fmt.Errorf("make a CD: %w", err)
	}
	return nil
}
