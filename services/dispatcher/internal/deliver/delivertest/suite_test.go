package delivertest

import (
	"testing"
	"time"
)

func TestStore_KeepsTheContract(t *testing.T) { CheckStore(t, NewStore(time.Now)) }
