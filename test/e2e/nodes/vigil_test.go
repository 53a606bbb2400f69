//go:build cluster && !slow

package nodes

import "time"

const vigilTime = 10 * time.Second
