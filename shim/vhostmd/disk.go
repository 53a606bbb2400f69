package vhostmd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

const (
	// Size is the size of a disk in bytes.
	Size = 256 << 10
	// headerSize is the size of the header, which the document follows.
	headerSize = 16
)

// header returns the header of a document: the signature, whether the document is being
// written, the sum of its bytes, and its length, each in four bytes.
func header(busy bool, document []byte) []byte {
	var sum, flag uint32
	for _, b := range document {
		sum += uint32(b)
	}
	if busy {
		flag = 1
	}
	h := append(make([]byte, 0, headerSize), "mvbd"...)
	for _, n := range []uint32{flag, sum, uint32(len(document))} {
		h = binary.BigEndian.AppendUint32(h, n)
	}
	return h
}

// Create makes the file of a disk, which has no metrics yet.
func Create(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("create a disk of metrics: %w", err)
	}
	if err := errors.Join(f.Truncate(Size), f.Close()); err != nil {
		return fmt.Errorf("create a disk of metrics: %w", err)
	}
	return Write(path, nil)
}

// Write replaces the metrics of a disk, and keeps its size. A reader that meets a write
// sees that the disk is busy, or that the sum is wrong, and reads again.
func Write(path string, metrics []Metric) error {
	text, err := document(metrics)
	if err != nil {
		return err
	}
	if len(text) > Size-headerSize {
		return fmt.Errorf("write a disk of metrics: %d bytes are too many", len(text))
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0) // the file of a container that is gone stays away
	if err != nil {
		return fmt.Errorf("write a disk of metrics: %w", err)
	}
	_, busy := f.WriteAt(header(true, text), 0)
	_, body := f.WriteAt(text, headerSize)
	err = errors.Join(busy, body)
	if err == nil {
		_, err = f.WriteAt(header(false, text), 0)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write a disk of metrics: %w", err)
	}
	return nil
}
