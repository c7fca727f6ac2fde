//! Contents of the files of programs, and the translation images that tenants have of them.

use super::storage::{self, Storage};
use super::{Store, StoreError};
use rusqlite::{OptionalExtension, TransactionBehavior, params};

/// Most files of a program with known contents: its VMs may request any file.
const MAX_FILES: u32 = 4096;

/// SHA-256 of a file that can be translated; `None`: it cannot be.
pub type Contents = Option<[u8; 32]>;

impl Store {
    /// The contents of a program's file, if they are known.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn contents(
        &self,
        tenant: &str,
        program: &str,
        inode: u32,
    ) -> Result<Option<Contents>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT digest FROM program_file WHERE tenant = ? AND program = ? AND inode = ?",
        )?;
        let found = statement.query_row(params![tenant, program, inode], |row| row.get(0));
        Ok(found.optional()?)
    }

    /// Notes the contents of a program's file. `false`: the program is gone, or has too many known
    /// files already.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn note_contents(
        &self,
        tenant: &str,
        program: &str,
        (inode, contents): (u32, Contents),
    ) -> Result<bool, StoreError> {
        let noted = self.connection().execute(
            "INSERT OR REPLACE INTO program_file (tenant, program, inode, digest)
             SELECT tenant, id, ?3, ?4 FROM program WHERE tenant = ?1 AND id = ?2
             AND ?5 > (SELECT count(*) FROM program_file WHERE tenant = ?1 AND program = ?2)",
            params![tenant, program, inode, contents, MAX_FILES],
        )?;
        Ok(noted == 1)
    }

    /// Contents of files that only this program of a tenant has.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn own_contents(&self, tenant: &str, program: &str) -> Result<Vec<[u8; 32]>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT DISTINCT digest FROM program_file AS own
             WHERE tenant = ?1 AND program = ?2 AND digest IS NOT NULL AND NOT EXISTS (
                 SELECT 1 FROM program_file AS other WHERE other.tenant = ?1
                 AND other.digest = own.digest AND other.program <> ?2)",
        )?;
        let found = statement.query_map([tenant, program], |row| row.get(0))?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Contents of all files of a tenant's programs.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn all_contents(&self, tenant: &str) -> Result<Vec<[u8; 32]>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(
            "SELECT DISTINCT digest FROM program_file WHERE tenant = ? AND digest IS NOT NULL",
        )?;
        let found = statement.query_map([tenant], |row| row.get(0))?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Counts an image in a tenant's storage, before it is written.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Quota`] if the tenant has no room for it.
    pub fn add_image(&self, tenant: &str, key: &str, size: u64) -> Result<(), StoreError> {
        let mut connection = self.connection();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // An existing image of this key is replaced.
        transaction.execute(
            "DELETE FROM image WHERE tenant = ? AND key = ?",
            [tenant, key],
        )?;
        storage::check(&transaction, tenant, Storage::file(size))?;
        transaction.execute(
            "INSERT INTO image (tenant, key, size) VALUES (?, ?, ?)",
            params![tenant, key, size],
        )?;
        Ok(transaction.commit()?)
    }

    /// Stops counting an image. Result: whether another tenant has one of this key.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn forget_image(&self, tenant: &str, key: &str) -> Result<bool, StoreError> {
        let connection = self.connection();
        connection.execute(
            "DELETE FROM image WHERE tenant = ? AND key = ?",
            [tenant, key],
        )?;
        let mut statement = connection.prepare_cached("SELECT 1 FROM image WHERE key = ?")?;
        Ok(statement.exists([key])?)
    }

    /// Stops counting an image for all tenants.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn forget_image_of_all(&self, key: &str) -> Result<(), StoreError> {
        self.connection()
            .execute("DELETE FROM image WHERE key = ?", [key])?;
        Ok(())
    }

    /// Keys of the images of a tenant.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn images(&self, tenant: &str) -> Result<Vec<String>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached("SELECT key FROM image WHERE tenant = ?")?;
        let found = statement.query_map([tenant], |row| row.get(0))?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    /// Number of images, and their bytes: each tenant's counts.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn image_totals(&self) -> Result<(u64, u64), StoreError> {
        let totals = "SELECT count(*), coalesce(sum(size), 0) FROM image";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        Ok(self.connection().query_row(totals, [], row)?)
    }
}
