// Package critest keeps the dependencies of critest in this module's go.sum. critest is a test, so a
// tool directive can't name it.
package critest

import (
	_ "sigs.k8s.io/cri-tools/pkg/benchmark"
	_ "sigs.k8s.io/cri-tools/pkg/validate"
)
