package imageunpack

import "github.com/opencontainers/go-digest"

// Inspect is Check.
var Inspect = Check

// DecodeConfig is decodeConfig, for what it says of any bytes.
func DecodeConfig(blob []byte) (os, arch string, layers []digest.Digest, err error) {
	c, err := decodeConfig(blob)
	return c.os, c.arch, c.layers, err
}

// Settled is settled.
var Settled = settled
