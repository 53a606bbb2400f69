package imageunpack

import (
	"context"
	"io"

	"github.com/opencontainers/go-digest"
)

// Inspect is Check.
var Inspect = Check

// DecodeConfig is decodeConfig, for what it says of any bytes.
func DecodeConfig(blob []byte) (os, arch string, layers []digest.Digest, err error) {
	c, err := decodeConfig(blob)
	return c.os, c.arch, c.layers, err
}

// Cancelable is what a check reads through.
func Cancelable(ctx context.Context, r io.ReaderAt) io.ReaderAt { return cancelable{ctx, r} }

// Limited and CheckTime are limited and checkTime.
var Limited = limited

const CheckTime = checkTime

// Settled is settled.
var Settled = settled
