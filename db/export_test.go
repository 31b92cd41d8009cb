package db

// InTxIdle is InTx with another limit for standing still.
var InTxIdle = inTx
