//! What the ends of connections do.

use std::{
    io,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};

use super::{BROKEN, HUNG_UP, Later, Net, Pipe, PipeId, READ, WINDOW_BYTES, WRITE, What, reset};

impl Net {
    pub(in crate::whole) fn read(
        &self,
        pipe: PipeId,
        side: usize,
        max: usize,
        into: &mut BytesMut,
    ) -> io::Result<usize> {
        let mut later = Later::default();
        let count = {
            let mut state = self.0.lock();
            let Some(pipe) = state.pipes.get_mut(&pipe) else {
                return Err(reset());
            };
            let own = &mut pipe.sides[side];
            if own.broken {
                return Err(reset());
            }
            if own.arrived.is_empty() {
                return match own.ended {
                    true => Ok(0),
                    false => Err(io::ErrorKind::WouldBlock.into()),
                };
            }
            let count = own.arrived.len().min(max);
            into.extend_from_slice(&own.arrived.split_to(count));
            pipe.sides[1 - side].wake(&[WRITE], &mut later);
            count
        };
        later.carry_out(self);
        Ok(count)
    }

    pub(in crate::whole) fn write(
        &self,
        id: PipeId,
        side: usize,
        bytes: &[u8],
    ) -> io::Result<usize> {
        let mut state = self.0.lock();
        let Some(pipe) = state.pipes.get_mut(&id) else {
            return Err(reset());
        };
        let (from, broken) = (pipe.sides[side].host, pipe.sides[side].broken);
        if broken || pipe.sides[side].shut {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let other = &mut pipe.sides[1 - side];
        let room = WINDOW_BYTES.saturating_sub(other.coming + other.arrived.len());
        let count = room.min(bytes.len());
        if count == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let to = other.host;
        if state.hosts.get(&from).is_some_and(|host| host.mute) {
            return Ok(count);
        }
        if let Some(pipe) = state.pipes.get_mut(&id) {
            pipe.sides[1 - side].coming += count;
        }
        let bytes = Bytes::copy_from_slice(&bytes[..count]);
        state.send(from, to, id, What::Data(1 - side, bytes));
        Ok(count)
    }

    pub(in crate::whole) fn shut(&self, id: PipeId, side: usize) {
        let mut state = self.0.lock();
        let Some(pipe) = state.pipes.get_mut(&id) else {
            return;
        };
        if std::mem::replace(&mut pipe.sides[side].shut, true) {
            return;
        }
        let (from, to) = (pipe.sides[side].host, pipe.sides[1 - side].host);
        state.send(from, to, id, What::Fin(1 - side));
    }

    pub(in crate::whole) fn close(&self, id: PipeId, side: usize) {
        self.shut(id, side);
        let mut state = self.0.lock();
        if let Some(pipe) = state.pipes.get_mut(&id) {
            pipe.sides[side].open = false;
            pipe.sides[side].arrived.clear();
            pipe.sides[side].wakers = Default::default();
        }
    }

    fn poll<T>(
        &self,
        pipe: PipeId,
        side: usize,
        which: usize,
        context: &Context<'_>,
        gone: T,
        ready: impl FnOnce(&Pipe) -> Option<T>,
    ) -> Poll<T> {
        let mut state = self.0.lock();
        let Some(pipe) = state.pipes.get_mut(&pipe) else {
            return Poll::Ready(gone);
        };
        match ready(pipe) {
            Some(value) => Poll::Ready(value),
            None => {
                pipe.sides[side].wait(which, context);
                Poll::Pending
            }
        }
    }

    pub(in crate::whole) fn poll_readable(
        &self,
        pipe: PipeId,
        side: usize,
        context: &Context<'_>,
    ) -> Poll<()> {
        self.poll(pipe, side, READ, context, (), |pipe| {
            let side = &pipe.sides[side];
            (side.broken || side.ended || !side.arrived.is_empty()).then_some(())
        })
    }

    pub(in crate::whole) fn poll_writable(
        &self,
        pipe: PipeId,
        side: usize,
        context: &Context<'_>,
    ) -> Poll<()> {
        self.poll(pipe, side, WRITE, context, (), |pipe| {
            let other = &pipe.sides[1 - side];
            let room = other.coming + other.arrived.len() < WINDOW_BYTES;
            (pipe.sides[side].broken || room).then_some(())
        })
    }

    pub(in crate::whole) fn poll_hung_up(
        &self,
        pipe: PipeId,
        side: usize,
        context: &Context<'_>,
    ) -> Poll<bool> {
        self.poll(pipe, side, HUNG_UP, context, true, |pipe| {
            let side = &pipe.sides[side];
            (side.broken || side.ended).then_some(side.broken)
        })
    }

    pub(in crate::whole) fn poll_broken(
        &self,
        pipe: PipeId,
        side: usize,
        context: &Context<'_>,
    ) -> Poll<()> {
        self.poll(pipe, side, BROKEN, context, (), |pipe| {
            pipe.sides[side].broken.then_some(())
        })
    }
}
