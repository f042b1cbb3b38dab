package fifo

const fionread = 0x4004667f // FIONREAD, which x/sys/unix does not name
