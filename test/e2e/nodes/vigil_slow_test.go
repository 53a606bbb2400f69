//go:build cluster && slow

package nodes

import "time"

const vigilTime = time.Minute
