package console

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// position is the offset up to which a console is logged, and the end of the log
// then. If the log has grown since, its last records, which may be incomplete, are
// truncated and written again.
type position struct {
	offset  int64 // bytes of the raw file that need not be read again
	dropped int64 // bytes before offset that are in no record, and of which the log does not know yet
	open    bool  // the last record was partial
	log     logEnd
}

// after returns the position n bytes later in the raw file.
func (p position) after(n int) position {
	p.offset += int64(n)
	return p
}

const (
	positionMagic = "nvcons2\n"
	positionSize  = 8 + 4*8 + 1 + 4
)

func (p position) encode() []byte {
	out := binary.LittleEndian.AppendUint64([]byte(positionMagic), uint64(p.offset))
	out = binary.LittleEndian.AppendUint64(out, uint64(p.dropped))
	out = binary.LittleEndian.AppendUint64(out, p.log.inode)
	out = binary.LittleEndian.AppendUint64(out, uint64(p.log.size))
	var flags byte
	if p.open {
		flags = 1
	}
	out = append(out, flags)
	return binary.LittleEndian.AppendUint32(out, crc32.ChecksumIEEE(out))
}

func decodePosition(data []byte) (position, error) {
	if len(data) != positionSize || string(data[:8]) != positionMagic {
		return position{}, errors.New("not a console position")
	}
	if body := data[:positionSize-4]; crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(data[positionSize-4:]) {
		return position{}, errors.New("checksum does not match")
	}
	p := position{
		offset:  int64(binary.LittleEndian.Uint64(data[8:])),
		dropped: int64(binary.LittleEndian.Uint64(data[16:])),
		log: logEnd{
			inode: binary.LittleEndian.Uint64(data[24:]),
			size:  int64(binary.LittleEndian.Uint64(data[32:])),
		},
		open: data[40] != 0,
	}
	if p.offset < 0 || p.dropped < 0 || p.log.size < 0 {
		return position{}, errors.New("out of range")
	}
	return p, nil
}

// positionFile stores a position across restarts of the shim. One pwrite writes a
// record in place, which a killed shim does not split. Nothing is synced, since a
// crash of the node ends the guest as well.
type positionFile struct {
	file  *os.File
	saved position
}

// openPosition opens or creates the file at path. damaged is why an existing record
// cannot be used: then, as for a new file, the position is zero.
func openPosition(path string) (p *positionFile, damaged, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open console position: %w", err)
	}
	// One byte more than a record shows that the file is something else.
	data, err := io.ReadAll(io.LimitReader(file, positionSize+1))
	if err != nil {
		_ = file.Close()
		return nil, nil, fmt.Errorf("read console position: %w", err)
	}
	p = &positionFile{file: file}
	if len(data) > 0 {
		p.saved, damaged = decodePosition(data)
	}
	if len(data) > 0 && damaged == nil {
		return p, nil, nil
	}
	// Writing it now allocates its block, so that save works on a full disk.
	if err := errors.Join(file.Truncate(0), p.write(position{})); err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	return p, damaged, nil
}

// save stores a position, unless it is unchanged.
func (p *positionFile) save(at position) error {
	if at == p.saved {
		return nil
	}
	return p.write(at)
}

func (p *positionFile) write(at position) error {
	if _, err := p.file.WriteAt(at.encode(), 0); err != nil {
		return fmt.Errorf("save console position: %w", err)
	}
	p.saved = at
	return nil
}
